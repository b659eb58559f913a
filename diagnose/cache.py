"""Cached bytes on disk, under the hash of what they were made from: for what is slow to make.

The cache may be deleted at any time. Without it everything works, more slowly. ``DIAGNOSE_CACHE`` names the folder (default
``$XDG_CACHE_HOME/diagnose`` or ``~/.cache/diagnose``); an empty string switches the cache off.

Above 256 MiB, what was not used for the longest time is deleted. Several processes may share a folder.

What the shipped rules need comes with the package, compressed, in its folder ``_ready``. ``diagnose.ready`` makes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import tempfile
import time
from pathlib import Path

_MOST = 256 << 20
"""bytes; a small file counts as a block of the disk"""
_BLOCK = 4096
_CHECKSUM = 20
"""bytes at the beginning of a file"""
_LOOKS = 16
"""how often the folder is checked while as many bytes come in as it may hold"""
_LEFT = 0.75
"""share of the limit that is left after old files were deleted"""
_ABANDONED_S = 3600.0
"""age at which an unfinished file is deleted"""
READY = Path(__file__).parent / "_ready"
"""what came with the package; it is only read"""
_OURS = re.compile(r"[a-z]+-[0-9a-f]{40}")
_UNFINISHED = re.compile(r"\.[a-z]+-\w{8}")


def key_of(*parts: bytes | str) -> str:
    """A name for content: equal parts give an equal key. The borders between parts count."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def fetch(kind: str, key: str) -> bytes | None:
    """What was stored under ``key`` or came with the package; or None."""
    name = f"{kind}-{key}"
    folder = where()
    if folder is not None:
        path = folder / name
        with contextlib.suppress(OSError):
            with path.open("rb") as file:  # a database has tens of megabytes: it is not copied
                head, body = file.read(_CHECKSUM), file.read()
            if _fits(head, body):
                with contextlib.suppress(OSError):  # a folder that may only be read
                    os.utime(path)
                return body
    try:
        packed = (READY / name).read_bytes()
    except OSError:
        return None
    return checked(unpacked(packed))


def sealed(data: bytes) -> bytes:
    """A cache file with ``data``: the checksum, then the content."""
    return hashlib.blake2b(data, digest_size=_CHECKSUM).digest() + data


def checked(data: bytes) -> bytes | None:
    """The content of a cache file, or None if the checksum is wrong.

    The checksum finds a file that a full disk cut short: Hyperscan must never get a damaged database.
    """
    head, body = data[:_CHECKSUM], data[_CHECKSUM:]
    return body if _fits(head, body) else None


def _fits(head: bytes, body: bytes) -> bool:
    return hashlib.blake2b(body, digest_size=_CHECKSUM).digest() == head


def unpacked(data: bytes) -> bytes:
    """A cache file from its compressed form in ``_ready``; empty if that is damaged."""
    import zstandard  # later runs often find all in the cache

    try:
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError:
        return b""


def store(kind: str, key: str, data: bytes) -> None:
    """Store ``data`` under ``key``, whole or not at all. Does nothing, silently, if the folder is not writable."""
    folder = where()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{kind}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sealed(data))
            os.replace(temporary, folder / f"{kind}-{key}")
        except OSError:
            os.unlink(temporary)
            raise
        # By chance, in proportion to the size: so no process has to know what the others store.
        if random.random() * _MOST < _LOOKS * max(len(data), _BLOCK):  # noqa: S311 - no secret
            _trim(folder)


def _trim(folder: Path) -> None:
    """Delete the least recently used files if there is too much. Another process may do the same at this moment."""
    files: list[tuple[float, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            ours = _OURS.fullmatch(entry.name)
            if not ours and not _UNFINISHED.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):
                told = entry.stat(follow_symlinks=False)
                if ours:
                    files.append((told.st_mtime, max(told.st_size, _BLOCK), entry.path))
                elif time.time() - told.st_mtime > _ABANDONED_S:
                    os.unlink(entry.path)
    total = sum(size for _, size, _ in files)
    if total <= _MOST:
        return
    for _, size, path in sorted(files):
        if total <= _LEFT * _MOST:
            break
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # another process was faster
        except OSError:
            continue
        total -= size


def where() -> Path | None:
    """The folder; None where the cache is switched off."""
    named = os.environ.get("DIAGNOSE_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "diagnose"
