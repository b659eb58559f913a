"""Accepted bytes -> on disk before the answer: append-only segments of records, synced in groups by one thread.

What it promises:

- Call ``append`` on the event loop. Its ``done`` is called there too, in the same order, once the record is on disk (fdatasync)
  or
  has failed. All that waits while one sync runs goes out with the next one: many clients share a sync.
- A failed write (disk full) fails everything after it, in order, and leaves no half record. Later appends may succeed.
- Recovery yields every whole record on disk, and reports each damaged one (``segments``). Only a torn tail is cut off: nobody
  was
  told that its write had succeeded. A damaged segment is never cut, and is set aside when it would be deleted.
- A segment is deleted when the database has all that jobs wrote into it, and the archive too if raw logs are kept. While a
  backup is made (``held``), none is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.folder_lock import Guard
from service.errors import Busy, Unavailable
from service.segments import ENDING, HEADING, Damage, Definition, Owner, Reader, Record, first_lsn, framed, name_of

log = logging.getLogger("diagnose.journal")

_MOST_BUFFERS = 512
_MOST_NAMES = 20_000
_NEVER = (1 << 63) - 1
_ASIDE = ".damaged"
_HOLD = "hold"
_TELL_S = 10.0
_MOST_ASIDE = 8
"""damaged segments that are kept for a look; if there are more, the oldest are deleted"""


@dataclass(slots=True)
class Entry:
    """One record on its way to disk."""

    stream: Definition
    kind: int
    offset: int
    key: int
    at_ms: int
    data: bytes
    done: Callable[[Entry, Exception | None], None]
    lsn: int = 0


@dataclass(slots=True)
class _Segment:
    path: Path
    size: int = 0
    latest: dict[Owner, int] = field(default_factory=dict)
    """owner -> its last LSN that the database does not have yet"""
    raw: dict[Owner, int] = field(default_factory=dict)
    """the same for the archive, if there is one"""
    mark: int = 0
    damaged: bool = False


class Journal:
    """The segments in one folder. Only one process may open it, once."""

    def __init__(self, folder: Path, *, segment: int = 64 << 20, limit: int = 16 << 30, archives: bool = False) -> None:
        """``archives``: a segment is needed until ``archived`` says that it is not."""
        self.folder = folder
        self._archives = archives
        self._segment_size, self._limit = segment, limit
        self._queue: list[Entry] = []
        self._wake = threading.Condition()
        self._broken: Exception | None = None
        self._told, self._told_at = "", 0.0
        self._closing = False
        self._lock = threading.Lock()
        """for the segments and what is stored"""
        self._closed: list[_Segment] = []
        self._current: _Segment | None = None
        self._file = -1
        self._names: dict[Definition, bytes] = {}
        self._lsn = 1
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.syncs = 0
        self._guard = Guard(folder, "another service", "--data")
        self._deleting = threading.Lock()
        self._hold = os.open(folder / _HOLD, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    # --- what was there ------------------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[Record | Damage]:
        """Every record on disk, oldest first, and what is damaged. Read this to the end before ``start``."""
        paths = sorted(self.folder.glob(f"*{ENDING}"))
        for path in paths:
            yield from self._recover(path, last=path is paths[-1])
        self._delete_free()

    def _recover(self, path: Path, *, last: bool) -> Iterator[Record | Damage]:
        segment = _Segment(path, path.stat().st_size)
        reader = Reader(path)
        try:
            for record in reader.records(segment.size):
                if isinstance(record, Record):
                    self._lsn = max(self._lsn, record.lsn + 1)
                    segment.latest[record.stream.owner] = record.lsn
                    if self._archives:
                        segment.raw[record.stream.owner] = record.lsn
                yield record
            rest = segment.size - reader.end
            torn = rest > 0 and last and reader.is_unfinished(segment.size)
            segment.damaged = reader.damaged or (rest > 0 and not torn)
            if segment.damaged and rest and not torn:
                yield Damage(path, reader.end, rest)
            elif torn and not segment.damaged:
                log.info("cut a torn tail of %d bytes off %s", rest, path.name)
                with contextlib.suppress(OSError):
                    os.truncate(path, reader.end)
                segment.size = reader.end
        finally:
            reader.close()
        with self._lock:
            self._closed.append(segment)

    @property
    def damaged(self) -> int:
        """How many damaged segments there are, in use or set aside."""
        with self._lock:
            return sum(segment.damaged for segment in self._segments()) + len(list(self.folder.glob(f"*{_ASIDE}")))

    @property
    def lsn(self) -> int:
        """The last LSN that was given out."""
        return self._lsn - 1

    @property
    def oldest(self) -> int:
        """No remaining record has a smaller LSN. Works before ``recover``, too."""
        found = map(first_lsn, self.folder.glob(f"*{ENDING}"))
        return min((lsn for lsn in found if lsn is not None), default=_NEVER)

    def start(self, after: int = 0) -> None:
        """Begin to write, on the event loop. ``after``: the last LSN that the database knows."""
        self._lsn = max(self._lsn, after + 1)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # --- writing -------------------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Put one record on its way; on the event loop. Refuses at once if it could not be written anyway."""
        with self._wake:
            if self._broken is not None or self._closing:
                raise Unavailable(
                    "the journal cannot be written at present", remedy="try again in a moment", retry_after_s=1
                ) from self._broken
            if self.size > self._limit:
                raise Busy(
                    f"the journal has reached its limit of {self._limit:,} bytes",
                    remedy="nothing more is accepted until the database has caught up; what was accepted is safe",
                    retry_after_s=10,
                )
            entry.lsn = self._lsn
            self._lsn += 1
            self._queue.append(entry)
            self._waiting += len(entry.data)
            self._wake.notify()

    @property
    def size(self) -> int:
        """Bytes of all segments, and of what waits to be written."""
        current = self._current.size if self._current else 0
        return self._waiting + current + sum(segment.size for segment in self._closed)

    @property
    def segments(self) -> int:
        return len(self._closed) + (self._current is not None)

    def _run(self) -> None:
        assert self._loop is not None
        while True:
            with self._wake:
                while not self._queue and not self._closing:
                    self._wake.wait()
                if not self._queue:
                    return
                entries, self._queue = self._queue, []
            failure: Exception | None = None
            try:
                self._write(entries)
            except OSError as error:
                failure = error
                self._tell(error)
                with self._wake:
                    self._broken = error
                    entries += self._queue
                    self._queue = []
            try:
                self._loop.call_soon_threadsafe(self._settle, entries, failure)
            except RuntimeError:
                return  # the event loop is gone: nobody waits for an answer

    def _tell(self, error: OSError) -> None:
        """Log it, but not for each of a thousand senders: the log may be on the same disk."""
        now = time.monotonic()
        if str(error) != self._told or now - self._told_at > _TELL_S:
            log.error("the journal cannot be written: %s", error)
            self._told, self._told_at = str(error), now

    def _settle(self, entries: list[Entry], failure: Exception | None) -> None:
        """Notify all, in order, on the event loop."""
        refusal: Exception | None = None
        if failure is not None:
            refusal = Unavailable(
                f"could not be written to disk: {getattr(failure, 'strerror', None) or failure}",
                remedy="nothing of this was stored; try again once the disk can be written",
                retry_after_s=5,
            )
        for entry in entries:
            self._waiting -= len(entry.data)
            entry.done(entry, refusal)
        if failure is not None:
            with self._wake:
                self._broken = None

    def _write(self, entries: list[Entry]) -> None:
        segment = self._writable(entries[0].lsn)
        buffers: list[bytes] = []
        for entry in entries:
            name = self._name(entry.stream)
            buffers += framed(segment.mark, entry.lsn, entry.kind, name, entry.offset, entry.key, entry.at_ms, entry.data)
        size = sum(map(len, buffers))
        try:
            _write_all(self._file, buffers)
            os.fdatasync(self._file)
        except OSError:
            # After a failed sync nobody knows what is on disk: this segment ends at its last good record.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, segment.size)
            self._close_segment()
            raise
        self.syncs += 1
        with self._lock:
            segment.size += size
            for entry in entries:
                segment.latest[entry.stream.owner] = entry.lsn
                if self._archives:
                    segment.raw[entry.stream.owner] = entry.lsn
        if segment.size >= self._segment_size:
            self._close_segment()

    def _name(self, stream: Definition) -> bytes:
        known = self._names.get(stream)
        if known is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            known = self._names[stream] = stream.as_bytes()
        return known

    def _writable(self, lsn: int) -> _Segment:
        if self._current is not None:
            return self._current
        name, mark = name_of(lsn)
        path = self.folder / name
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(self._file, [HEADING])
            sync_folder(self.folder)
        except OSError:
            os.close(self._file)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._current = _Segment(path, len(HEADING), mark=mark)
        return self._current

    def _close_segment(self) -> None:
        assert self._current is not None
        os.close(self._file)
        with self._lock:
            self._closed.append(self._current)
            self._current = None

    # --- forgetting ----------------------------------------------------------------------------------------------------------

    def stored(self, owner: Owner, lsn: int) -> None:
        """The database has what ``owner`` wrote up to ``lsn``. Any thread may call this."""
        with self._lock:
            for segment in self._segments():
                if segment.latest.get(owner, lsn + 1) <= lsn:
                    del segment.latest[owner]
        self._delete_free()

    def archived(self, owners: Mapping[Owner, int]) -> None:
        """The archive has what each owner wrote up to an LSN. Any thread may call this."""
        with self._lock:
            for segment in self._segments():
                for owner in segment.raw.keys() & owners.keys():
                    if segment.raw[owner] <= owners[owner]:
                        del segment.raw[owner]
        self._delete_free()

    def unreadable(self, path: Path) -> None:
        """The archive could not read all of this segment. It does not wait for the rest."""
        with self._lock:
            for segment in self._segments():
                if segment.path == path:
                    segment.raw.clear()
                    segment.damaged = True
        self._delete_free()

    def spoilt(self, path: Path) -> bool:
        """Note that a segment is damaged on disk: it is set aside, not deleted. Returns whether that is news."""
        with self._lock:
            found = [segment for segment in self._segments() if segment.path == path and not segment.damaged]
            for segment in found:
                segment.damaged = True
            return bool(found)

    def durable(self) -> list[tuple[Path, int, bool]]:
        """(segment, how far it is on disk, whether it still grows), the oldest first. Any thread may call this."""
        with self._lock:
            return [(segment.path, segment.size, segment is self._current) for segment in self._segments()]

    def _segments(self) -> list[_Segment]:
        current = self._current
        return [*self._closed, current] if current is not None else self._closed

    def _delete_free(self) -> None:
        with self._deleting:
            with self._lock:
                free = [segment for segment in self._closed if not segment.latest and not segment.raw]
                if not free or not self._let_go():
                    return
                self._closed = [segment for segment in self._closed if segment.latest or segment.raw]
            left = [segment for segment in free if not self._deleted(segment)]
            with self._lock:
                self._closed = [*left, *self._closed]
            fcntl.flock(self._hold, fcntl.LOCK_UN)

    def _deleted(self, segment: _Segment) -> bool:
        """Delete a segment that nobody needs. A disk that is read-only keeps it until later; no thread may die of that."""
        try:
            if segment.damaged:
                self._set_aside(segment.path)
            else:
                segment.path.unlink(missing_ok=True)
        except FileNotFoundError:
            return True
        except OSError as error:
            self._tell(error)
            return False
        return True

    def _let_go(self) -> bool:
        """Whether segments may be deleted now. If so, nobody can begin to hold them before they are gone."""
        try:
            fcntl.flock(self._hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # a network disk may have no locks just now
            self._tell(error)
            return False
        return True

    def _set_aside(self, path: Path) -> None:
        """Nobody reads it again, but somebody may want to see the damage."""
        path.rename(path.with_suffix(_ASIDE))
        log.warning("set the damaged segment aside as %s", path.with_suffix(_ASIDE))
        for old in sorted(self.folder.glob(f"*{_ASIDE}"))[:-_MOST_ASIDE]:
            old.unlink(missing_ok=True)

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(30)
        if self._current is not None:
            self._close_segment()
        os.close(self._hold)
        self._guard.close()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within this context the service that has the journal deletes nothing of it. Another process may call this."""
    file = os.open(folder / _HOLD, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, too: else a new file may be there after a power cut without its name."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _write_all(file: int, buffers: list[bytes]) -> None:
    at = 0
    while at < len(buffers):
        some = buffers[at : at + _MOST_BUFFERS]
        wanted = sum(map(len, some))
        written = os.writev(file, some)
        if written < wanted:  # a full disk, or a signal: write the rest in one piece
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[os.write(file, rest) :]
        at += len(some)
