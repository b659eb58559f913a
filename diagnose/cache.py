"""Things that are slow to make and safe to keep: bytes on disk under the hash of what they were made from.

A cache can always be deleted; one that cannot be read or written is only slower. ``DIAGNOSE_CACHE`` names the folder
(default ``$XDG_CACHE_HOME/diagnose`` or ``~/.cache/diagnose``); set to an empty string it switches the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path


def key_of(*parts: bytes | str) -> str:
    """A name for content: equal parts, equal key; the borders between parts count."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def fetch(kind: str, key: str) -> bytes | None:
    """What was stored under ``key``, or None."""
    folder = _folder()
    if folder is None:
        return None
    try:
        data = (folder / f"{kind}-{key}").read_bytes()
    except OSError:
        return None
    # The checksum guards against a file cut short by a full disk: Hyperscan must never be given a damaged database.
    head, body = data[:20], data[20:]
    return body if hashlib.blake2b(body, digest_size=20).digest() == head else None


def store(kind: str, key: str, data: bytes) -> None:
    """Keep ``data`` under ``key``; whole or not at all, and silently not at all where the folder is not writable."""
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{kind}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.blake2b(data, digest_size=20).digest() + data)
            os.replace(temporary, folder / f"{kind}-{key}")
        except OSError:
            os.unlink(temporary)
            raise


def _folder() -> Path | None:
    named = os.environ.get("DIAGNOSE_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "diagnose"
