"""One file with all that a service has, made while it runs: journal, raw logs and database.

Everything that was acknowledged before the backup began is in it. The service deletes nothing of its journal meanwhile. The
database is copied first, then the raw logs, and then the journal, which has all that the other two do not have yet. A restored
service reads it as after a crash.

The file is a tar archive, packed with zstd. Its last member says what the others are, with a digest of each.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard

from diagnose import __version__
from diagnose.errors import DiagnoseError
from diagnose.folder_lock import Guard
from service.journal import held
from service.raw import archive as raw
from service.segments import ENDING, Reader, Record
from service.settings import Settings
from service.store import Store
from service.store.migrations import copies

_FORMAT = "diagnose.backup/1"
_LAST = "backup.json"
_JOURNAL, _RAW, _DATABASE = "journal", "raw", "database"
_PIECE = 1 << 20
_LEVEL = 3


@dataclass
class Contents:
    """What is in a backup."""

    made_at: float = 0.0
    version: str = ""
    database: dict[str, Any] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    """member -> (bytes, digest)"""
    records: int = 0
    """of the journal"""
    raw_logs: bool = False

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())


class _Digest:
    """Reads so many bytes of a file, and notes their digest. A file that was cut meanwhile is refused."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.sha = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        found = self._file.read(wanted)
        self._left -= len(found)
        self.sha.update(found)
        return found


def back_up(settings: Settings, out: IO[bytes]) -> Contents:
    """Write all that a service has to ``out``. The service may run."""
    if not (settings.data / _JOURNAL).is_dir():
        raise DiagnoseError("there is no service here", where=str(settings.data), remedy="name its folder with --data")
    store = Store(settings.database) if settings.database else Store.in_folder(settings.data)
    contents = Contents(time.time(), __version__, raw_logs=settings.raw_logs is not None)
    try:
        with (
            held(settings.data / _JOURNAL),
            zstandard.ZstdCompressor(_LEVEL, threads=-1).stream_writer(out, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            with tempfile.TemporaryDirectory(dir=settings.data, prefix=".backup-") as draft:
                contents.database = copies.dump(store, Path(draft))
                for name in copies.files(contents.database):
                    _add(tar, contents, Path(draft) / name, f"{_DATABASE}/{name}")
            if settings.raw_logs is not None:
                for path in _raw_files(settings.raw_logs):
                    _add(tar, contents, path, f"{_RAW}/{path.relative_to(settings.raw_logs)}")
            for path in sorted((settings.data / _JOURNAL).glob(f"*{ENDING}")):
                _add(tar, contents, path, f"{_JOURNAL}/{path.name}")
            _add_last(tar, contents)
    finally:
        store.close()
    return contents


def _raw_files(folder: Path) -> Iterator[Path]:
    for job in raw.jobs(folder):
        yield from sorted(path for path in job.rglob("*") if path.is_file())


def _add(tar: tarfile.TarFile, contents: Contents, path: Path, name: str) -> None:
    """Add a file as far as it has grown by now. One that is gone was not needed any more."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, 0o600, int(contents.made_at)
        reading = _Digest(file, size)
        tar.addfile(member, reading)
        contents.files[name] = size, reading.sha.hexdigest()


def _add_last(tar: tarfile.TarFile, contents: Contents) -> None:
    told = {
        "format": _FORMAT,
        "made_at": contents.made_at,
        "version": contents.version,
        "raw_logs": contents.raw_logs,
        "database": contents.database,
        "files": contents.files,
    }
    data = json.dumps(told).encode()
    member = tarfile.TarInfo(_LAST)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))


def unpack(source: IO[bytes], folder: Path) -> Contents:
    """Unpack a backup into an empty folder, and compare each byte with what was written down when it was made."""
    found: dict[str, tuple[int, str]] = {}
    told: dict[str, Any] | None = None
    try:
        with (
            zstandard.ZstdDecompressor().stream_reader(source, closefd=False) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for member in tar:
                file = tar.extractfile(member)
                if file is None or not _is_plain(member.name):
                    raise _not_whole(f"it has a member {member.name[:100]!r}")
                if member.name == _LAST:
                    told = json.loads(file.read())
                    continue
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                reading = _Digest(file, member.size)
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as target:
                    while block := reading.read(_PIECE):
                        target.write(block)
                    target.flush()
                    os.fsync(target.fileno())
                found[member.name] = member.size, reading.sha.hexdigest()
    except (zstandard.ZstdError, tarfile.TarError, ValueError, EOFError) as error:
        raise _not_whole(str(error)) from None
    if told is None or told.get("format") != _FORMAT:
        raise _not_whole("its end is missing" if told is None else f"its format is {str(told.get('format'))[:60]}")
    wanted = {name: (size, digest) for name, (size, digest) in told["files"].items()}
    if found != wanted:
        first = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))[0]
        raise _not_whole(f"{first} is not what was backed up")
    contents = Contents(told["made_at"], told["version"], told["database"], found, raw_logs=told["raw_logs"])
    contents.records = sum(_records(path) for path in (folder / _JOURNAL).glob(f"*{ENDING}"))
    return contents


def restore(source: IO[bytes], settings: Settings) -> Contents:
    """Make the data folder, the database and the raw logs of a service from a backup. None of them may have anything yet."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    guard = Guard(settings.data / _JOURNAL, "a service", "--data")
    try:
        if any((settings.data / _JOURNAL).glob(f"*{ENDING}")) or (settings.data / "diagnose.db").exists():
            raise _in_use("the data folder has something already", str(settings.data), "--data")
        if settings.raw_logs is not None and any(raw.jobs(settings.raw_logs)):
            raise _in_use("the folder has raw logs already", str(settings.raw_logs), "--raw-logs")
        with tempfile.TemporaryDirectory(dir=settings.data, prefix=".restore-") as draft:
            return _put(unpack(source, Path(draft)), Path(draft), settings)
    finally:
        guard.close()


def salvage(settings: Settings) -> dict[str, int]:
    """Make a new SQLite database of what can be read of a damaged one. The service must not run."""
    if settings.database is not None and not settings.database.startswith("sqlite"):
        remedy = "restore a backup, or use what PostgreSQL has for it"
        raise DiagnoseError("only a SQLite database can be salvaged", where="--database", remedy=remedy)
    store = Store(settings.database) if settings.database else Store.in_folder(settings.data)
    path = Path(str(store.engine.url.database))
    store.close()
    if not path.is_file():
        raise DiagnoseError("there is no database here", where=str(path), remedy="name its folder with --data")
    guard = Guard(settings.data / _JOURNAL, "a service", "--data")
    try:
        return copies.salvage(path)
    finally:
        guard.close()


def _put(contents: Contents, draft: Path, settings: Settings) -> Contents:
    sqlite = contents.database["kind"] == copies.SQLITE
    if sqlite != (settings.database is None or settings.database.startswith("sqlite")):
        remedy = "leave --database out" if sqlite else "name an empty one: --database postgresql://USER@HOST/NAME"
        raise DiagnoseError(f"the backup is of a {contents.database['kind']} database", remedy=remedy)
    if (draft / _RAW).exists() and settings.raw_logs is None:
        raise DiagnoseError("the backup has raw logs", remedy="say where to put them: --raw-logs DIR")
    store = Store(settings.database) if settings.database else Store.in_folder(settings.data)
    try:
        if not copies.is_empty(store):
            raise _in_use("the database has tables already", settings.database or str(settings.data), "--database")
        if sqlite:
            store.engine.dispose()
            target = Path(str(store.engine.url.database))
            for left in target.parent.glob(f"{target.name}*"):
                left.unlink()
            shutil.move(draft / _DATABASE / "diagnose.db", target)
        copies.load(contents.database, draft / _DATABASE, store)
    finally:
        store.close()
    if settings.raw_logs is not None and (draft / _RAW).exists():
        settings.raw_logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        for shelf in (draft / _RAW).iterdir():
            shutil.move(shelf, settings.raw_logs / shelf.name)
    for path in sorted((draft / _JOURNAL).glob(f"*{ENDING}")):
        os.replace(path, settings.data / _JOURNAL / path.name)
    return contents


def _records(path: Path) -> int:
    """How many whole records a segment has."""
    reader = Reader(path)
    try:
        return sum(isinstance(one, Record) and not one.lost for one in reader.records(path.stat().st_size))
    finally:
        reader.close()


def _is_plain(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return name == _LAST or (parts[:1] in ((_JOURNAL,), (_RAW,), (_DATABASE,)) and ".." not in parts)


def _not_whole(what: str) -> DiagnoseError:
    return DiagnoseError(f"this is not a whole backup: {what}", remedy="use another one; nothing was restored from it")


def _in_use(what: str, where: str, option: str) -> DiagnoseError:
    return DiagnoseError(what, where=where, remedy=f"restore into an empty one: {option}")
