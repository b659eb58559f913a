"""The runner's memory on disk: how far each file was read, and what waits for the service. One SQLite file per runner.

The transaction that moves a file's position also records where the bytes are: with the service, or in the queue here. So after
a crash a runner repeats at most one piece, which the service recognises by its offset.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from diagnose.errors import DiagnoseError
from diagnose.folder_lock import Guard
from diagnose.shipping.destination import Owner

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, device INTEGER, inode INTEGER, head BLOB, position INTEGER, base INTEGER, owner TEXT, refused TEXT
);
CREATE TABLE IF NOT EXISTS waiting (id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT, start INTEGER, size INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS ends (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT, attempt INTEGER, exit_code INTEGER);
"""


@dataclass(slots=True)
class FileState:
    """How far a file was read. Its byte 0 is byte ``base`` of its source: rotated files are one source."""

    path: str
    owner: Owner
    device: int = 0
    inode: int = 0
    head: bytes = b""
    """its first bytes, to see whether it is still the same file"""
    position: int = 0
    base: int = 0
    refused: str | None = None
    """why the service will never take it"""

    @property
    def offset(self) -> int:
        """Offset of the next byte in the source."""
        return self.base + self.position


@dataclass(frozen=True, slots=True)
class Waiting:
    """A piece that the service does not have yet."""

    id: int
    owner: Owner
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WaitingEnd:
    id: int
    job: str
    attempt: int | None
    exit_code: int


class Spool:
    """Only one process at a time may open it."""

    def __init__(self, folder: Path, limit: int = 1 << 30) -> None:
        self.limit = limit
        self._guard = Guard(folder, "another runner", "--state")
        try:
            self._database = sqlite3.connect(folder / "runner.db", isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            # A killed process loses nothing; after a power failure a piece may be sent twice, which is harmless.
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(_TABLES)
            self.bytes = int(self._database.execute("SELECT coalesce(sum(length(data)), 0) FROM waiting").fetchone()[0])
            self.pieces = int(self._database.execute("SELECT count(*) FROM waiting").fetchone()[0])
        except sqlite3.Error as error:
            raise DiagnoseError(
                f"the runner's state is damaged ({error})", where=str(folder / "runner.db"),
                remedy="delete it; logs that still exist are sent again, and the service skips what it has",
            ) from None  # fmt: skip
        self._compressor = zstandard.ZstdCompressor(level=3)

    def close(self) -> None:
        self._database.close()
        self._guard.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # --- files

    def files(self) -> dict[str, FileState]:
        rows = self._database.execute("SELECT path, owner, device, inode, head, position, base, refused FROM files")
        return {row[0]: FileState(row[0], _owner(row[1]), *row[2:]) for row in rows}

    def moved(self, state: FileState) -> None:
        """The file was read so far, and the service has all of it."""
        with self._transaction() as database:
            _keep(database, state)

    def forget(self, path: str) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM files WHERE path = ?", (path,))

    # --- what waits

    def fits(self, size: int) -> bool:
        """Whether a piece of ``size`` bytes may be kept. A single one always may."""
        return not self.pieces or self.bytes + size // 4 <= self.limit

    def put(self, owner: Owner, offset: int, data: bytes, state: FileState | None = None) -> None:
        """Keep a piece until the service is back. ``state`` says that its file was read."""
        packed = self._compressor.compress(data)
        with self._transaction() as database:
            database.execute(
                "INSERT INTO waiting (owner, start, size, data) VALUES (?, ?, ?, ?)", (_text(owner), offset, len(data), packed)
            )
            if state is not None:
                _keep(database, state)
        self.bytes += len(packed)
        self.pieces += 1

    def first(self) -> Waiting | None:
        """The oldest piece."""
        row = self._database.execute("SELECT id, owner, start, size, data FROM waiting ORDER BY id LIMIT 1").fetchone()
        if row is None:
            return None
        data = zstandard.ZstdDecompressor().decompress(row[4], max_output_size=row[3])
        return Waiting(row[0], _owner(row[1]), row[2], data)

    def sent(self, piece: Waiting) -> None:
        size = self._database.execute("SELECT length(data) FROM waiting WHERE id = ?", (piece.id,)).fetchone()[0]
        with self._transaction() as database:
            database.execute("DELETE FROM waiting WHERE id = ?", (piece.id,))
        self.bytes -= int(size)
        self.pieces -= 1

    def rename(self, owner: Owner, renamed: Owner, offset: int) -> None:
        """Rename the waiting pieces of a source. Byte 0 of the new name is byte ``offset`` of the old one."""
        with self._transaction() as database:
            database.execute(
                "UPDATE waiting SET owner = ?, start = start - ? WHERE owner = ?", (_text(renamed), offset, _text(owner))
            )

    def put_end(self, job: str, attempt: int | None, exit_code: int) -> None:
        with self._transaction() as database:
            database.execute("INSERT INTO ends (job, attempt, exit_code) VALUES (?, ?, ?)", (job, attempt, exit_code))

    def first_end(self) -> WaitingEnd | None:
        row = self._database.execute("SELECT id, job, attempt, exit_code FROM ends ORDER BY id LIMIT 1").fetchone()
        return WaitingEnd(*row) if row else None

    def sent_end(self, end: WaitingEnd) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM ends WHERE id = ?", (end.id,))


def _keep(database: sqlite3.Connection, state: FileState) -> None:
    database.execute(
        "INSERT OR REPLACE INTO files (path, owner, device, inode, head, position, base, refused)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (state.path, _text(state.owner), state.device, state.inode, state.head, state.position, state.base, state.refused),
    )


def _text(owner: Owner) -> str:
    return json.dumps([owner.job, owner.source, owner.attempt, owner.rank, owner.node, dict(owner.labels)])


def _owner(text: str) -> Owner:
    return Owner(*json.loads(text))


def default_folder() -> Path:
    """The default folder for a runner's state."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "diagnose" / "runner"
