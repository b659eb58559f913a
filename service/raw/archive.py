"""Raw logs, if the operator wants them: writes the bytes in the journal to disk, one log per source (``parts``).

One thread reads the journal after the bytes are written there, so nothing waits for it. A segment of the journal stays until
all of it is archived. Guarantees:

- Each accepted byte is stored once, by its offset, even if the process is killed: what the logs lack is still in the journal.
- Memory is bounded. Small sources wait together until they fill a frame, for ``wait_s``, or until somebody asks.
- A full disk (or less free space than ``leave_free``) stops the archive, not the service: what is accepted waits in the
  journal.
  If the journal is then half full, or half of ``leave_free`` is used too, the bytes are given up and counted, and the log has a
  gap with a note.

The name of a folder is a digest, so no byte of a request is part of a path. Everything is written to local disks. Another
place, such as an object store, would replace the functions on files in ``parts``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from diagnose.folder_lock import Guard
from diagnose.redaction.stream import conceal
from service.journal import Journal
from service.raw import parts
from service.raw.parts import RawLog, Written
from service.segments import DATA, Damage, Owner, Reader, Record
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.archive")

_MOST = 32 << 20
"""bytes that wait in memory"""
_MOST_LOGS = 5_000
_A_PASS = 400
"""sources that are written and synced together"""
_LOOK_S = 0.5
_PAUSE_S = 5.0
_DELETED_S = 60.0
_SOURCES_A_SECOND = 50.0
_PATIENCE = 10.0
"""the end of a line may take so many times the usual wait"""
JOB = "job.json"
_SOURCE = "source.json"


@dataclass(slots=True)
class _Waiting:
    """Bytes of one source that are not in its log yet."""

    parts: list[tuple[int, bytes]] = field(default_factory=list)
    """(LSN, bytes)"""
    size: int = 0
    since: float = 0.0

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.parts)

    def drop(self, size: int) -> None:
        """The first ``size`` bytes are in the log."""
        self.size -= size
        self.since = time.monotonic()
        left = 0
        while size and left < len(self.parts):
            lsn, data = self.parts[left]
            if len(data) > size:
                self.parts[left] = lsn, data[size:]
                break
            size -= len(data)
            left += 1
        del self.parts[:left]


@dataclass(slots=True)
class _Attempt:
    """The part of an attempt that is not archived yet."""

    sources: dict[str, _Waiting] = field(default_factory=dict)
    lsn: int = 0
    """read so far"""
    asked: bool = False
    ended: bool = False

    def archived(self) -> int:
        return min((waiting.parts[0][0] - 1 for waiting in self.sources.values() if waiting.parts), default=self.lsn)


class Archive:
    """The raw logs below one folder."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        telemetry: Telemetry,
        *,
        redact: bool = False,
        wait_s: float = 20.0,
        job_limit: int | None = None,
        leave_free: int = 1 << 30,
        journal_limit: int = 16 << 30,
    ) -> None:
        self.folder = folder
        self._journal, self._telemetry = journal, telemetry
        self._conceal: Callable[[bytes], bytes] | None = conceal if redact else None
        self._wait_s, self._job_limit, self._leave_free, self._journal_limit = wait_s, job_limit, leave_free, journal_limit
        self._part = min(parts.PART, max(parts.FRAME, job_limit // 8)) if job_limit else parts.PART
        self._attempts: dict[Owner, _Attempt] = {}
        self._size = 0
        self._logs: OrderedDict[tuple[str, int, str], RawLog] = OrderedDict()
        self._job_sizes: OrderedDict[str, int] = OrderedDict()
        self._reader: Reader | None = None
        self._read = ""
        """the last segment that was read to its end"""
        self.problem: str | None = None
        """why nothing is archived at present"""
        self._paused_until = 0.0
        self._wake = threading.Condition()
        self._asked: list[tuple[Owner, Callable[[], None]]] = []
        self._work: list[Callable[[], None]] = []
        self._gone: dict[str, int] = {}
        """deleted jobs -> an LSN: what the journal has of them up to it is not wanted"""
        self._emptied: dict[Owner, float] = {}
        """attempts whose raw logs were deleted -> when: what the journal has of them up to then is not wanted"""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
        self._guard = Guard(folder, "another service", "--raw-logs", parts.make_folder)

    def start(self) -> None:
        """Begin, after the journal."""
        self._thread.start()

    def close(self) -> None:
        """Archive what the journal has, if the disk takes it, and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(30)
        self._guard.close()

    # --- asked from elsewhere ------------------------------------------------------------------------------------------------

    def source(self, job: str, attempt: int, source: str) -> Path:
        """The folder of a source's raw log, if there is one."""
        return self.attempt(job, attempt) / _digest(source)

    def attempt(self, job: str, attempt: int) -> Path:
        return self.job(job) / str(attempt)

    def job(self, job: str) -> Path:
        name = _digest(job)
        return self.folder / name[:2] / name

    async def fresh(self, job: str, attempt: int, within_s: float = 5.0) -> None:
        """Have what was accepted so far archived. After ``within_s`` it returns anyway."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))

        with self._wake:
            self._asked.append(((job, attempt), done))
            self._wake.notify()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(future, within_s)

    def forget(self, gone: Mapping[str, int], emptied: Mapping[Owner, float] = MappingProxyType({})) -> None:
        """Forget deleted jobs up to an LSN, and emptied attempts up to a time. Call this before ``delete``."""
        with self._wake:
            self._gone = {**self._gone, **gone}
            self._emptied = {**self._emptied, **emptied}

    def delete(self, job: str, attempt: int | None = None) -> int:
        """Delete the raw logs of an attempt, or of a job. Returns the number of bytes. Other threads call this; the writer does
        it.

        Raises ``OSError`` if something is left. Then it must be called again.
        """
        deleted: Future[int] = Future()

        def work() -> None:
            try:
                deleted.set_result(self._delete(job, attempt))
            except Exception as error:
                deleted.set_exception(error)

        with self._wake:
            if not self._thread.is_alive():
                return self._delete(job, attempt)
            self._work.append(work)
            self._wake.notify()
        return deleted.result(_DELETED_S)

    # --- the thread ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                closing = self._closing
                asked, self._asked = self._asked, []
                work, self._work = self._work, []
            more = False
            try:
                for one in work:
                    one()
                for owner, _ in asked:
                    if owner in self._attempts:
                        self._attempts[owner].asked = True
                more = self._read_on({owner for owner, _ in asked})
                self._write(closing)
            except OSError as error:
                self._fail(str(error.strerror or error))
            except Exception as error:
                log.exception("archiving")
                self._fail(type(error).__name__)
            for _, done in asked:
                done()
            if closing and (not more or self.problem):
                return
            with self._wake:
                if not ((more and not self.problem) or self._asked or self._work or self._closing):
                    self._wake.wait(_LOOK_S)

    def _fail(self, why: str) -> None:
        if self.problem is None:
            log.error("raw logs cannot be written: %s", why)
        self.problem = why
        self._telemetry.raw_up.set(0)
        self._paused_until = time.monotonic() + _PAUSE_S

    # --- reading the journal -------------------------------------------------------------------------------------------------

    def _read_on(self, asked: set[Owner]) -> bool:
        """Read what is new in the journal. True if there is more than memory may hold."""
        if self._size >= _MOST:
            return True
        gone, emptied = self._gone, self._emptied
        for path, size, grows in self._unread():
            if self._reader is None or self._reader.path != path:
                if self._reader is not None:
                    self._reader.close()
                self._reader = Reader(path)
            for record in self._reader.records(size):
                if not isinstance(record, Damage):
                    self._take(record, asked)
                if self._size >= _MOST:
                    return True
            if not grows:
                if self._reader.end < size or self._reader.damaged:
                    log.error("%s is damaged: raw logs have gaps where its records cannot be read", path.name)
                    self._journal.unreadable(path)
                self._reader.close()
                self._reader, self._read = None, path.name
        with self._wake:  # all that nobody wants any more has been read by now
            self._gone = {} if self._gone is gone else self._gone
            self._emptied = {} if self._emptied is emptied else self._emptied
        return False

    def _unread(self) -> list[tuple[Path, int, bool]]:
        """The segments of the journal that were not read to their end."""
        return [one for one in self._journal.durable() if one[0].name > self._read]

    def _behind(self) -> int:
        """Bytes of the journal that were not read yet."""
        return sum(size for _, size, _ in self._unread()) - (self._reader.end if self._reader is not None else 0)

    def _take(self, record: Record, asked: set[Owner]) -> None:
        owner = record.stream.owner
        attempt = self._attempts.get(owner)
        if attempt is None:
            attempt = self._attempts[owner] = _Attempt()
        attempt.lsn = record.lsn
        if record.lsn <= self._gone.get(owner[0], 0) or record.at_ms / 1000 <= self._emptied.get(owner, 0.0):
            return
        attempt.asked = attempt.asked or owner in asked
        if record.kind != DATA:
            attempt.ended = True
            return
        if record.lost:  # what follows begins after the lost bytes, so there is a gap
            self._telemetry.raw_lost_bytes.inc(record.lost)
            return
        source = record.stream.source
        waiting = attempt.sources.get(source)
        known = self._log((*owner, source))
        end = known.end + (waiting.size if waiting is not None else 0)
        data, offset = record.data, record.offset
        if offset < end:
            data = data[end - offset :]
        elif offset > end:
            # What came before is unknown: the archive was switched on later, or gave it up before the process was killed.
            if waiting is not None:
                attempt.ended = True
                self._write_out([(owner, source)])
                waiting = None
            known.skip(offset, None)
        if not data:
            return
        if waiting is None:
            waiting = attempt.sources[source] = _Waiting(since=time.monotonic())
        waiting.parts.append((record.lsn, data))
        waiting.size += len(data)
        self._size += len(data)

    def _log(self, key: tuple[str, int, str]) -> RawLog:
        known = self._logs.get(key)
        if known is None:
            known = self._logs[key] = RawLog(self.source(*key), self._part)
            while len(self._logs) > _MOST_LOGS:
                oldest = next(iter(self._logs))
                if oldest[2] in getattr(self._attempts.get(oldest[:2]), "sources", ()):
                    self._logs.move_to_end(oldest)  # its gaps are noted in memory and not on disk yet
                    break
                del self._logs[oldest]
        else:
            self._logs.move_to_end(key)
        return known

    # --- writing -------------------------------------------------------------------------------------------------------------

    def _write(self, closing: bool) -> None:
        """Write what is due, and tell the journal what it may forget."""
        now = time.monotonic()
        if self._paused_until > now and not closing:
            self._give_up_where_need_be()
            return
        if free := self._too_little():
            self._fail(free)
        if self._give_up_where_need_be() or free:
            return
        wait = max(self._wait_s, sum(len(attempt.sources) for attempt in self._attempts.values()) / _SOURCES_A_SECOND)
        due, rest = [], []
        for owner, attempt in self._attempts.items():
            for source, waiting in attempt.sources.items():
                hurry = closing or attempt.asked or attempt.ended
                if hurry or waiting.size >= parts.FRAME or now - waiting.since > wait:
                    due.append((owner, source))
                else:
                    rest.append((waiting.size, owner, source))
        if self._size >= _MOST // 2:  # the largest first, until there is room
            rest.sort(key=lambda one: -one[0])
            room = self._size - sum(self._attempts[owner].sources[source].size for owner, source in due)
            for size, owner, source in rest:
                if room < _MOST // 2:
                    break
                due.append((owner, source))
                room -= size
        for at in range(0, len(due), _A_PASS):
            self._write_out(due[at : at + _A_PASS], now - _PATIENCE * wait)
        if self.problem is not None:  # there is room, and what was due is written
            log.info("raw logs are written again")
            self.problem = None
            self._telemetry.raw_up.set(1)
        self._tell()

    def _write_out(self, some: list[tuple[Owner, str]], long_ago: float = 0.0) -> None:
        """Write and sync the logs of ``some`` sources."""
        begun: list[tuple[Owner, str, RawLog, Written, int]] = []
        try:
            for owner, source in some:
                attempt = self._attempts[owner]
                waiting = attempt.sources[source]
                known = self._log((*owner, source))
                data = waiting.data
                # Half a line waits a while for its other half, because secrets are searched for in whole lines.
                torn = len(data) - (data.rfind(b"\n") + 1)
                shown = attempt.asked and self._conceal is None
                if torn < parts.FRAME and waiting.since > long_ago and not (attempt.ended or shown):
                    data = data[: len(data) - torn]
                if not data:
                    continue
                self._describe(owner, source, known)
                begun.append((owner, source, known, known.append(data, self._conceal), len(data)))
            for owner, source, known, written, size in begun:
                known.commit(written)
                self._committed(owner, source, written, size)
        except OSError:
            for _, _, known, written, _ in begun:
                if known.end != written.end:
                    known.rollback(written)
            raise

    def _committed(self, owner: Owner, source: str, written: Written, size: int) -> None:
        waiting = self._attempts[owner].sources[source]
        waiting.drop(size)
        self._size -= size
        if not waiting.parts:
            del self._attempts[owner].sources[source]
        self._telemetry.raw_bytes.inc(size)
        self._telemetry.raw_stored_bytes.inc(written.new)
        self._weigh(owner[0], written.new)

    def _tell(self) -> None:
        """Tell the journal what it may forget."""
        self._journal.archived({owner: attempt.archived() for owner, attempt in self._attempts.items()})
        for owner in [owner for owner, attempt in self._attempts.items() if not attempt.sources]:
            del self._attempts[owner]
        for attempt in self._attempts.values():
            attempt.asked = attempt.ended = False

    def _describe(self, owner: Owner, source: str, known: RawLog) -> None:
        """Write into the folders what they belong to, for people and for programs that list them."""
        if known.described:
            return
        job, _ = owner
        parts.make_folder(known.folder)
        for path, told in ((self.job(job) / JOB, {"job": job}), (known.folder / _SOURCE, {"source": source})):
            if not path.exists():
                draft = path.with_suffix(".new")
                with open(draft, "w") as file:
                    json.dump(told, file)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
        known.described = True

    # --- too much ------------------------------------------------------------------------------------------------------------

    def _too_little(self) -> str | None:
        """Why there is no room, if there is none."""
        free = _free(self.folder)
        return f"{free:,} bytes are free, and {self._leave_free:,} are to stay free" if free < self._leave_free else None

    def _give_up_where_need_be(self) -> bool:
        """Give up bytes if there was no room for long, or if this is too slow. A gap in the logs is better than a full journal,
        which accepts nothing more.
        """
        if self._behind() < self._journal_limit // 2 and _free(self.folder) > self._leave_free // 2:
            return False
        lost = self._size
        for owner, attempt in self._attempts.items():
            for source, waiting in attempt.sources.items():
                known = self._log((*owner, source))
                known.skip(known.end + waiting.size, sum(data.count(b"\n") for _, data in waiting.parts))
            attempt.sources.clear()
        self._size = 0
        if lost:
            log.error("gave up %d bytes of raw logs: %s", lost, self.problem or "they arrive faster than they can be written")
            self._telemetry.raw_lost_bytes.inc(lost)
        self._tell()
        return True

    def _weigh(self, job: str, new: int) -> None:
        """If a job's raw logs are larger than allowed, delete the oldest parts; the first and the last part of each source
        last.
        """
        if self._job_limit is None:
            return
        size = self._job_sizes.get(job)
        self._job_sizes[job] = size + new if size is not None else sum(one.stat().st_size for one in _parts(self.job(job)))
        self._job_sizes.move_to_end(job)
        while len(self._job_sizes) > _MOST_LOGS:
            self._job_sizes.popitem(last=False)
        if self._job_sizes[job] <= self._job_limit:
            return
        found: list[tuple[bool, bool, float, Path, int]] = []
        for folder in {part.parent for part in _parts(self.job(job))}:
            known = parts.parts(folder)
            for number, part in enumerate(known):
                told = part.path.stat()
                last = number == len(known) - 1
                found.append((last, number == 0 and not last, told.st_mtime, part.path, told.st_size))
        open_ = {log_.part: log_ for log_ in self._logs.values() if log_.part is not None}
        for *_, path, size in sorted(found):
            if self._job_sizes[job] <= self._job_limit:
                break
            path.unlink()
            self._job_sizes[job] -= size
            self._telemetry.raw_deleted_bytes.labels("job").inc(size)
            if path in open_:
                open_[path].without(path)

    def _delete(self, job: str, attempt: int | None) -> int:
        folder = self.job(job) if attempt is None else self.attempt(job, attempt)
        for owner, waiting in self._attempts.items():
            if owner[0] == job and attempt in (None, owner[1]):
                self._size -= sum(one.size for one in waiting.sources.values())
                waiting.sources.clear()
        for key in [key for key in self._logs if key[0] == job and attempt in (None, key[1])]:
            del self._logs[key]
        self._job_sizes.pop(job, None)
        freed = size(folder)
        if folder.exists():
            shutil.rmtree(folder)
        return freed


def jobs(folder: Path) -> Iterator[Path]:
    """The folders of jobs."""
    with contextlib.suppress(FileNotFoundError):
        for shelf in os.scandir(folder):
            if shelf.is_dir():
                yield from (Path(entry.path) for entry in os.scandir(shelf) if entry.is_dir())


def sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """(job, bytes of its raw logs) for all jobs."""
    for job in jobs(folder):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it is just being made, or deleted
            yield str(json.loads((job / JOB).read_text())["job"]), size(job)


def size(folder: Path) -> int:
    """Bytes on disk below ``folder``."""
    return sum(one.stat().st_size for one in _parts(folder))


def _parts(folder: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _parts(Path(entry.path))
        elif entry.name.endswith(".zst"):
            yield Path(entry.path)


def _free(folder: Path) -> int:
    told = os.statvfs(folder)
    return told.f_bavail * told.f_frsize


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
