"""The manifest of a checkpoint: size and checksums of every file. It is written last, so a checkpoint that has one is complete.

``commit`` first makes sure that the files are on the disk, then writes the manifest beside them under another name, and renames
it. After a power cut there is either the whole manifest of files that are there, or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from diagnose.checkpoints.hashes import BLOCK, FileHash, hash_file
from diagnose.errors import DiagnoseError
from diagnose.quantities import MIB

NAME: Final = "diagnose-manifest.json"
OURS: Final = "diagnose-"
"""how the names of our own files begin"""
SCHEMA: Final = "diagnose.checkpoint/1"
_MOST_BYTES = 512 * MIB
_MOST_STEP = 1 << 62


class ManifestError(DiagnoseError):
    """A manifest that cannot be used."""


@dataclass(frozen=True, slots=True)
class Manifest:
    step: int
    """steps done"""
    files: Mapping[str, FileHash]
    """path within the checkpoint -> what it must look like"""
    at: float = 0.0
    """when it was written, in seconds since 1970"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what was known when it was saved, such as the loss"""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files.values())


def seal(folder: Path, step: int, facts: Mapping[str, Any] | None = None) -> Manifest:
    """Hash what another writer left in a folder, and commit it. The writer must have finished."""
    files = {name: hash_file(folder / name) for name in files_of(folder)}
    made = Manifest(step, files, time.time(), facts or {})
    commit(folder, made)
    return made


def files_of(folder: Path) -> list[str]:
    """The files of a checkpoint, without our own. Links are followed only to files."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not name.startswith(OURS) and path.is_file():
                found.append(path.relative_to(folder).as_posix())
    return sorted(found)


def commit(folder: Path, manifest: Manifest, *, synced: bool = False) -> None:
    """Write the manifest, when all else is on the disk. ``synced``: the contents of the files are there already."""
    for name in () if synced else manifest.files:
        sync(folder / name)
    for place in sorted({(folder / name).parent for name in manifest.files} | {folder}):
        sync(place)
    beside = folder / f"{NAME}.part"
    with beside.open("wb") as file:
        file.write(text_of(manifest))
        file.flush()
        os.fsync(file.fileno())
    beside.rename(folder / NAME)
    sync(folder)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def text_of(manifest: Manifest) -> bytes:
    body = {
        "schema": SCHEMA,
        "step": manifest.step,
        "at": manifest.at,
        "facts": dict(manifest.facts),
        "block": BLOCK,
        "files": {name: [one.size, *one.blocks] for name, one in sorted(manifest.files.items())},
    }
    return json.dumps({**body, "sha256": _digest(body)}, indent=None, separators=(",", ":")).encode()


def _digest(body: Mapping[str, Any]) -> str:
    """Of the manifest itself: a flipped bit in it must not look like a flipped bit in a file."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read(folder: Path) -> Manifest | None:
    """The manifest of a checkpoint; None if there is none."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ManifestError(
            f"the manifest cannot be read: {error.strerror}", where=str(path), remedy="check its rights"
        ) from None
    return parsed(text, str(path))


def parsed(text: bytes, where: str) -> Manifest:
    """The manifest in a text."""
    try:
        return _read(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ManifestError(f"the manifest is damaged: {error}", where=where, remedy="take another checkpoint") from None


def _read(text: bytes) -> Manifest:
    if len(text) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    body = json.loads(text)
    if body.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    said = body.pop("sha256", None)
    if said != _digest(body):
        raise ValueError("it does not agree with its own checksum")
    if body["block"] != BLOCK:
        raise ValueError(f"its blocks do not have {BLOCK} bytes")
    files = {_safe(name): _file_hash(name, values) for name, values in body["files"].items()}
    return Manifest(_whole(body["step"]), files, float(body["at"]), dict(body["facts"]))


def _file_hash(name: str, values: list[Any]) -> FileHash:
    size, *blocks = map(_whole, values)
    if len(blocks) != -(-size // BLOCK):
        raise ValueError(f"the number of checksums of {name!r} does not fit its size")
    return FileHash(size, tuple(blocks))


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_STEP:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _safe(name: str) -> str:
    """A path that stays within the folder."""
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is not a file of the checkpoint")
    return name
