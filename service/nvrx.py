"""Logs that are named, not sent: the API of the attribution service for the NVIDIA resiliency extension.

The extension's launcher and its Slurm monitor give paths on a file system that both sides see. A path is read like any source,
so such a job has the same page, diagnosis and history as others. The answer is our report in the extension's words. Only files
under the allowed root are read, whatever links and dots a path has.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from service.errors import Busy, Refused, Unavailable
from service.intake.batch import Batch
from service.live.stream import End
from service.names import check_job
from service.runtime import Service
from service.store import reading
from service.store.history import attempts_before, report_of

log = logging.getLogger("diagnose.attribution")

Status = Literal["pending", "in_flight", "completed", "failed"]
Intent = Literal["track_only", "progressive", "terminal"]

PRINTED = 4096
_PIECE = 1 << 20
_MOST, _MOST_ACTIVE = 20_000, 1000
_POLL_S = 1.0
_SETTLED_S = 0.5
"""a log that shows a failure is read until nothing came for so long"""
_QUIET_S, _LEAST_S, _MOST_S = 5.0, 10.0, 40.0
"""one that shows none may still be on its way over the file system: so long without news, and at least and at most so long"""
_LONGEST_PATH = 4096
_IDLE_S = 24 * 3600.0
_HOPELESS = frozenset(("fix_config", "fix_code"))
_AGAIN = frozenset(("restart", "isolate_and_restart", "rollback_and_skip", "retry_later"))
_JOB_IN_PATH = (
    re.compile(r"_(\d+)_date_"),
    re.compile(r"(?:^|/)job[_-](\d+)/"),
    re.compile(r"slurm-(\d+(?:_\d+)?)\.(?:out|log)$"),
)
_CYCLE_IN_PATH = re.compile(r"_cycle(\d{1,6})\.log$")


class Wrong(Exception):
    """A request that cannot be served, in the extension's words."""

    def __init__(self, status: int, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details


@dataclass(slots=True)
class Submission:
    """A log that was named to us."""

    path: str
    job: str
    cycle: int | None
    named_job: str | None
    """the job as the extension names it"""
    user: str
    intent: Intent
    at: float
    status: Status = "pending"
    problem: str | None = None
    run: int = 0
    """the attempt, if the cycle does not say it: the path, or the job and cycle, was submitted before"""
    base: int = 0
    """where in the file it begins"""
    size: int = 0
    """of the file when it was read to its end"""

    @property
    def attempt(self) -> int | None:
        """Cycles count from 0, attempts from 1."""
        return self.run or (None if self.cycle is None else self.cycle + 1)

    @property
    def over(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def stage(self) -> str:
        """The status as the extension's lists of jobs and counts call it."""
        return {"pending": "registered", "in_flight": "analyzing"}.get(self.status, self.status)

    @property
    def phase(self) -> str:
        """How far the reading before the end is, in the extension's words."""
        if self.over:
            return "completed"
        return "not_started" if self.intent == "track_only" else "scheduled"


@dataclass(slots=True)
class _Work:
    """The work for one submission."""

    position: int = 0
    base: int = 0
    """the byte of the file that is byte 0 of the attempt; less than 0 if the file was cut and began anew"""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Attributions:
    """All submissions, by path."""

    def __init__(self, service: Service, root: Path) -> None:
        self._service = service
        try:
            self.root = Path(os.path.realpath(root, strict=True))
        except OSError as error:
            raise Refused(f"cannot be the allowed root: {error.strerror}", where=str(root), remedy="give a folder") from None
        self._submissions: OrderedDict[str, Submission] = OrderedDict()
        self._work: dict[str, _Work] = {}
        self._book = service.settings.data / "attribution.jsonl"
        self.forgotten = 0
        """submissions that were given up for newer ones"""
        self.closed = 0
        """logs that were closed for newer ones, before anybody said that they had ended"""
        self.bytes_read = 0
        self.last_timing: dict[str, Any] = {}
        """of the last log that was read to its end"""

    # --- coming and going

    def start(self) -> None:
        """Submissions from before a restart are still known. Unfinished ones are read to their end."""
        with contextlib.suppress(FileNotFoundError):
            for line in self._book.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):  # the last line of a killed writer
                    found = Submission(**json.loads(line))
                    self._submissions[found.path] = found
        self._write_all()
        for submission in list(self._submissions.values())[-_MOST_ACTIVE:]:
            if submission.status in ("pending", "in_flight") and submission.intent != "track_only":
                self._begin(submission, ended=submission.intent == "terminal")

    async def stop(self) -> None:
        for work in list(self._work.values()):
            if work.task is not None:
                work.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work.task

    # --- what they ask

    def submit(self, text: str, *, user: str, job_id: str | None, cycle_id: int | None, intent: Intent) -> Submission:
        """Register a path. Progressive and terminal ones are read. To submit the same again changes nothing.

        A path whose log went on, was cut, or is named for another job or cycle, begins a new attempt: what was said of the one
        before says nothing about it. A terminal one need not have a file yet.
        """
        path = self.allowed(text, must_exist=False)
        known = self._submissions.get(path)
        if known is None:
            known = self._register(path, user, job_id, cycle_id, intent)
        elif self._is_another(known, job_id, cycle_id, intent):
            known = self._again(known, user, job_id, cycle_id, intent)
        if intent == "terminal" or (intent == "progressive" and known.intent == "track_only"):
            known.intent = intent
        if known.intent != "track_only" and known.status in ("pending", "in_flight"):
            if known.path not in self._work:
                self._make_room()
                self._close_earlier_cycles(known)
            self._begin(known, ended=known.intent == "terminal")
        self._write(known)
        return known

    def find(self, text: str) -> Submission:
        path = self.allowed(text, must_exist=False)
        found = self._submissions.get(path)
        if found is None:
            raise Wrong(404, "not_found", "attempt has not been submitted")
        return found

    async def wait(self, submission: Submission, seconds: float) -> bool:
        """Wait until it is done. Returns whether it is."""
        work = self._work.get(submission.path)
        if work is not None and submission.intent == "terminal":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await work.done.wait()
        return submission.status in ("completed", "failed")

    async def report(self, submission: Submission) -> dict[str, Any] | None:
        """What we say of it."""
        store = self._service.store
        key = await store.aread(lambda connection: reading.attempt_id(connection, submission.job, submission.attempt))
        if key is None:
            return None
        found = await store.aread(lambda connection: reading.report(connection, key))
        whole: dict[str, Any] | None = found["report"] if found is not None else None
        return whole

    async def came_back(self, submission: Submission) -> bool:
        """Whether the cycle before failed alike, at the same step. Without a cycle there is none before."""
        if submission.cycle is None:
            return False

        def look(connection: Connection) -> bool:
            key = reading.attempt_id(connection, submission.job, submission.attempt)
            made = report_of(connection, key) if key is not None else None
            past = attempts_before(connection, key) if key is not None else ()
            if made is None or not past:
                return False
            last, now = past[-1], made.diagnosis
            return last.group is not None and (last.group, last.last_step) == (now.group, now.step)

        return await self._service.store.aread(look)

    def head(self, text: str) -> bytes:
        """The first characters of a log."""
        path = self.allowed(text, must_exist=True)
        descriptor = self._opened(path)
        try:
            return os.pread(descriptor, PRINTED * 4, 0)
        finally:
            os.close(descriptor)

    @property
    def counts(self) -> dict[str, int]:
        """How many are where."""
        found = Counter(one.stage for one in self._submissions.values())
        return {stage: found[stage] for stage in ("registered", "analyzing", "completed", "failed")}

    @property
    def open(self) -> int:
        """Logs that are read, and have not ended."""
        return sum(not work.ended.is_set() for work in self._work.values())

    @property
    def submissions(self) -> list[Submission]:
        return list(self._submissions.values())

    @property
    def in_flight(self) -> list[str]:
        return [path for path, one in self._submissions.items() if one.status == "in_flight"]

    # --- which paths

    def allowed(self, text: str, *, must_exist: bool) -> str:
        """The real path of ``text``, if it may be read."""
        if not os.path.isabs(text):
            raise Wrong(400, "invalid_path", "path must be absolute")
        if "\0" in text or len(text) > _LONGEST_PATH:
            raise Wrong(400, "invalid_path", "invalid path characters")
        try:
            text.encode("utf-8")
            real = os.path.realpath(text)
        except (OSError, ValueError):
            raise Wrong(400, "invalid_path", "invalid path characters") from None
        if os.path.commonpath([real, self.root]) != str(self.root):
            raise Wrong(403, "outside_root", "access outside allowed root is not permitted")
        try:
            status = os.stat(real)
        except FileNotFoundError:
            if must_exist or not os.path.isdir(os.path.dirname(real)):
                raise Wrong(404, "not_found", "path not found") from None
            return real
        except NotADirectoryError:
            raise Wrong(400, "invalid_path", "path parent is not a directory") from None
        except OSError:
            raise Wrong(403, "not_readable", "permission denied") from None
        if not stat.S_ISREG(status.st_mode):
            raise Wrong(400, "not_regular", "path must be a regular file")
        if not os.access(real, os.R_OK):
            raise Wrong(403, "not_readable", "permission denied")
        return real

    def _opened(self, path: str) -> int:
        """Open the path and check it again: a folder on the way may have become a link meanwhile."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Wrong(404, "not_found", "path not found") from None
        except OSError:
            raise Wrong(403, "not_readable", "permission denied") from None
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        inside = os.path.commonpath([real, self.root]) == str(self.root)
        if not inside or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Wrong(403, "outside_root", "access outside allowed root is not permitted")
        return descriptor

    # --- the work

    def _register(self, path: str, user: str, job_id: str | None, cycle_id: int | None, intent: Intent) -> Submission:
        named = (job_id or "").strip() or next((found[1] for pattern in _JOB_IN_PATH if (found := pattern.search(path))), None)
        cycle = cycle_id
        if cycle is None and (found := _CYCLE_IN_PATH.search(path)):
            cycle = int(found[1])
        run = 0
        if named is not None and cycle is not None:
            for other in self._submissions.values():
                if (other.named_job, other.cycle) != (named, cycle):
                    continue
                if not other.over:
                    raise Wrong(
                        400, "invalid_parameter", "the job and cycle were submitted with another path", {"was": other.path}
                    )
                run = self._next_run(other)  # the job was started again, and counts its cycles anew
        name = _name_of(named, path)
        while len(self._submissions) >= _MOST:
            oldest = next((key for key in self._submissions if key not in self._work), None)
            if oldest is None:
                raise Wrong(503, "job_limit_reached", "too many logs are being read")
            del self._submissions[oldest]
            self.forgotten += 1
        made = Submission(path, name, cycle, named, user[:200], intent, time.time(), run=run)
        self._submissions[path] = made
        return made

    def _is_another(self, known: Submission, job_id: str | None, cycle_id: int | None, intent: Intent) -> bool:
        """Whether a path that was submitted before is now the log of another attempt."""
        if (job_id is not None and job_id != known.named_job) or (cycle_id is not None and cycle_id != known.cycle):
            return True
        return known.over and (intent == "progressive" or (intent == "terminal" and _size(known.path) != known.size))

    def _again(self, known: Submission, user: str, job_id: str | None, cycle_id: int | None, intent: Intent) -> Submission:
        """The next attempt on the same path."""
        work = self._work.pop(known.path, None)
        if work is not None and work.task is not None:
            work.task.cancel()
        same = job_id in (None, known.named_job)
        run = self._next_run(known) if same else 0
        read, there = work.position if work is not None else known.size, _size(known.path)
        del self._submissions[known.path]
        named, cycle = job_id or known.named_job, cycle_id if cycle_id is not None else known.cycle
        made = self._register(known.path, user, named, cycle, intent)
        made.run = made.run or run
        made.base = read if there >= read else 0
        return made

    def _next_run(self, known: Submission) -> int:
        return 1 + max(one.attempt or 1 for one in (known, *self._submissions.values()) if one.job == known.job)

    def _make_room(self) -> None:
        """The oldest log that nobody waits for is closed. Those that have ended are few, and somebody waits for them."""
        if len(self._work) < _MOST_ACTIVE:
            return
        oldest = next((path for path, work in self._work.items() if not work.ended.is_set()), None)
        if oldest is not None:
            self.closed += 1
            self._begin(self._submissions[oldest], ended=True)
        elif len(self._work) >= 2 * _MOST_ACTIVE:
            raise Wrong(503, "job_limit_reached", f"{len(self._work)} logs are being read to their ends")

    def _close_earlier_cycles(self, begun: Submission) -> None:
        """When a cycle begins, those before it are over, also those that nobody has called failed."""
        if begun.cycle is None:
            return
        for path, work in list(self._work.items()):
            one = self._submissions[path]
            earlier = one.job == begun.job and one.cycle is not None and one.cycle < begun.cycle
            if earlier and not work.ended.is_set():
                self._begin(one, ended=True)

    def _begin(self, submission: Submission, *, ended: bool) -> None:
        work = self._work.get(submission.path)
        if work is None:
            work = self._work[submission.path] = _Work(submission.base, submission.base)
            submission.status = "in_flight" if ended else "pending"
            work.task = asyncio.create_task(self._attribute(submission, work))
        if ended:
            submission.status = "in_flight"
            work.ended.set()

    async def _attribute(self, submission: Submission, work: _Work) -> None:
        try:
            announced = await self._read(submission, work)
            drained = time.monotonic() - announced
            if work.position == work.base:
                raise Wrong(404, "not_found", "nothing was written to log_path")
            await self._service.ingest.finish(submission.job, submission.attempt, End("exit", time.time()))
            await self._service.jobs.fresh(submission.job, submission.attempt, report=True, within_s=60)
            submission.status, submission.size = "completed", _size(submission.path)
            self.last_timing = _timing(submission, drained, time.monotonic() - announced)
        except (Refused, Wrong, OSError) as error:
            submission.status, submission.problem = "failed", str(error)
            log.warning("%s was not attributed: %s", submission.path, error)
        finally:
            if submission.over:
                self._write(submission)
            work.done.set()
            if self._work.get(submission.path) is work:
                del self._work[submission.path]

    async def _read(self, submission: Submission, work: _Work) -> float:
        """Read the log into the ingestion until the end was announced, and it shows a failure or nothing came for long.

        Returns when the end was announced.
        """
        began = time.monotonic()
        while not work.ended.is_set() and time.monotonic() - began < _IDLE_S:
            if await self._read_on(submission, work):
                began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await work.ended.wait()
        announced = heard = looked = time.monotonic()
        while (now := time.monotonic()) < announced + _MOST_S:
            if await self._read_on(submission, work):
                heard = time.monotonic()
                continue
            if now - heard >= _QUIET_S and now - announced >= _LEAST_S:
                break
            if now - heard >= _SETTLED_S and looked <= heard:
                looked = now
                if await self._shows_a_failure(submission):
                    break
            await asyncio.sleep(_SETTLED_S / 4)
        return announced

    async def _shows_a_failure(self, submission: Submission) -> bool:
        await self._service.jobs.fresh(submission.job, submission.attempt, report=True, within_s=60)
        report = await self.report(submission)
        return report is not None and report["diagnosis"]["root_cause"] is not None

    async def _read_on(self, submission: Submission, work: _Work) -> bool:
        try:
            data, size = await asyncio.to_thread(self._piece, submission.path, work.position)
        except Wrong as wrong:
            if wrong.code == "not_found":
                return False  # it may come later, or be on its way over the file system
            raise
        if size < work.position:  # it was cut: what comes is new
            work.base -= work.position
            work.position = 0
            return False
        if not data:
            return False
        batch = Batch(
            job=submission.job,
            attempt=submission.attempt,
            source=submission.path,
            offset=work.position - work.base,
            data=data,
            labels={"user": submission.user} if submission.user.isprintable() and submission.user else {},
        )
        while True:
            try:
                accepted = await self._service.ingest.accept(batch, wait_s=30)
                break
            except (Busy, Unavailable) as later:
                await asyncio.sleep(later.retry_after_s or 1.0)
        self.bytes_read += len(data)
        work.position = max(work.position + len(data), accepted.next_offset + work.base)
        return True

    def _piece(self, path: str, position: int) -> tuple[bytes, int]:
        """(what comes from there, the size of the file)."""
        descriptor = self._opened(path)
        try:
            return os.pread(descriptor, _PIECE, position), os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    # --- the list of submissions on disk

    def _write(self, submission: Submission) -> None:
        with open(self._book, "a", encoding="utf-8") as book:
            book.write(json.dumps(asdict(submission)) + "\n")

    def _write_all(self) -> None:
        """One line per submission, instead of all its states."""
        fresh = self._book.with_suffix(".new")
        fresh.write_text("".join(json.dumps(asdict(one)) + "\n" for one in list(self._submissions.values())[-_MOST:]), "utf-8")
        fresh.replace(self._book)


def _name_of(named: str | None, path: str) -> str:
    """The job's name here. The extension takes any text for one, and without one the cycles of one path are one job."""
    if named is None:
        return f"log-{_short(_CYCLE_IN_PATH.sub('', path))}"
    try:
        return check_job(named)
    except Refused:
        return f"job-{_short(named)}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _timing(submission: Submission, drained_s: float, done_s: float) -> dict[str, Any]:
    """Seconds from the announced end. We have one stage where the extension has four: the diagnosis."""
    ready = ("l0a_ready", "deterministic_ready", "first_route_ready", "analysis_completed")
    return {
        "job_id": submission.named_job,
        "cycle_id": submission.cycle,
        "drain_wall_clock_s": round(drained_s, 3),
        **{f"{stage}_wall_clock_s": round(done_s, 3) for stage in ready},
    }


def progressive(attributions: Attributions) -> dict[str, Any]:
    """The extension's figures of what is read before its end."""
    return {
        "policy": {
            "enabled": True,
            "pre_end_poll_seconds": _POLL_S,
            "active_idle_seconds": _IDLE_S,
            "max_active_states": _MOST_ACTIVE,
            "max_completed_results": _MOST,
        },
        "states": dict(Counter(one.phase for one in attributions.submissions)),
        "active_state_count": attributions.open,
        "state_evictions": attributions.closed,
        "bytes_ingested": attributions.bytes_read,
        "bytes_reread": 0,
    }


def result_of(submission: Submission, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Our report with the fields that the extension's monitor prints: which module, which result, and a text."""
    diagnosis = (report or {}).get("diagnosis") or {}
    said = " ".join(str(part) for part in (diagnosis.get("summary"), diagnosis.get("mitigation")) if part)
    key = hashlib.blake2b(f"{submission.path}\0{submission.attempt}".encode(), digest_size=8).hexdigest()
    state = {"completed": "complete", "failed": "failed"}.get(submission.status, submission.status)
    return {
        **(report or {}),
        "module": "diagnose",
        "state": state,
        "result_id": key,
        "result": said or submission.problem or "",
    }


def recommendation(report: Mapping[str, Any] | None, *, came_back: bool) -> dict[str, str]:
    """Our action in the extension's words. The extension only acts on STOP, so STOP is only said if a restart is pointless.

    ``came_back``: it failed alike at the same place before. A diagnosis may be wrong, and one restart costs little.
    """
    if report is None:
        return {"action": "UNKNOWN", "reason": "nothing is known yet", "source": "deterministic"}
    diagnosis, kind = report["diagnosis"], report["action"]["kind"]
    source = "restart_agent" if diagnosis["by"] == "agent" else "deterministic"
    reason = " ".join(part for part in (diagnosis["summary"], report["action"]["why"]) if part)
    if report["outcome"] != "failed":
        action = "CONTINUE"
    elif kind in _HOPELESS:
        action = "STOP" if came_back else "RESTART"
    elif kind in _AGAIN:
        action = "RESTART"
    else:
        action = "UNKNOWN"
    return {"action": action, "reason": reason, "source": source}
