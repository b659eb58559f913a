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
from collections import OrderedDict
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
_POLL_S, _QUIET_S, _DRAIN_S = 1.0, 0.5, 10.0
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

    @property
    def attempt(self) -> int | None:
        """Cycles count from 0, attempts from 1."""
        return None if self.cycle is None else self.cycle + 1


@dataclass(slots=True)
class _Work:
    """The work for one submission."""

    position: int = 0
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
        self.counts = {"registered": 0, "analyzing": 0, "completed": 0, "failed": 0}

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
        """Register a path. Progressive and terminal ones are read. To submit the same again changes nothing."""
        path = self.allowed(text, must_exist=intent == "terminal")
        known = self._submissions.get(path)
        if known is None:
            known = self._register(path, user, job_id, cycle_id, intent)
        else:
            for name, given, had in (("job_id", job_id, known.named_job), ("cycle_id", cycle_id, known.cycle)):
                if given is not None and given != had:
                    raise Wrong(400, "invalid_parameter", f"the path was submitted with another {name}", {"was": had})
        if intent == "terminal" or (intent == "progressive" and known.intent == "track_only"):
            known.intent = intent
        if known.intent != "track_only" and known.status in ("pending", "in_flight"):
            if known.path not in self._work and len(self._work) >= _MOST_ACTIVE:
                raise Wrong(503, "job_limit_reached", f"{_MOST_ACTIVE} logs are being read")
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
        """Whether the cycle before failed alike, at the same step. Without a job and a cycle there is none before."""
        if submission.named_job is None or submission.cycle is None:
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
    def submissions(self) -> list[Submission]:
        return list(self._submissions.values())

    @property
    def in_flight(self) -> list[str]:
        return [path for path, one in self._submissions.items() if one.status == "in_flight"]

    # --- which paths

    def allowed(self, text: str, *, must_exist: bool) -> str:
        """The real path of ``text``, if it may be read."""
        if not text or "\0" in text or len(text) > _LONGEST_PATH or not os.path.isabs(text):
            raise Wrong(400, "invalid_path", "log_path must be an absolute path")
        try:
            text.encode("utf-8")
            real = os.path.realpath(text)
        except (OSError, ValueError):
            raise Wrong(400, "invalid_path", "log_path is not a path") from None
        if os.path.commonpath([real, self.root]) != str(self.root) or real == str(self.root):
            raise Wrong(403, "outside_root", "log_path is outside the allowed root")
        try:
            status = os.stat(real)
        except FileNotFoundError:
            if must_exist or not os.path.isdir(os.path.dirname(real)):
                raise Wrong(404, "not_found", "log_path does not exist") from None
            return real
        except OSError:
            raise Wrong(403, "not_readable", "log_path cannot be read") from None
        if not stat.S_ISREG(status.st_mode):
            raise Wrong(400, "not_regular", "log_path is not a regular file")
        if must_exist and not status.st_size:
            raise Wrong(400, "empty_file", "log_path is empty")
        if not os.access(real, os.R_OK):
            raise Wrong(403, "not_readable", "log_path cannot be read")
        return real

    def _opened(self, path: str) -> int:
        """Open the path and check it again: a folder on the way may have become a link meanwhile."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Wrong(404, "not_found", "log_path does not exist") from None
        except OSError:
            raise Wrong(403, "not_readable", "log_path cannot be read") from None
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        inside = os.path.commonpath([real, self.root]) == str(self.root)
        if not inside or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Wrong(403, "outside_root", "log_path is outside the allowed root")
        return descriptor

    # --- the work

    def _register(self, path: str, user: str, job_id: str | None, cycle_id: int | None, intent: Intent) -> Submission:
        named = job_id or next((found[1] for pattern in _JOB_IN_PATH if (found := pattern.search(path))), None)
        cycle = cycle_id
        if cycle is None and (found := _CYCLE_IN_PATH.search(path)):
            cycle = int(found[1])
        if named is not None and cycle is not None:
            for other in self._submissions.values():
                if (other.named_job, other.cycle) == (named, cycle):
                    raise Wrong(
                        400, "invalid_parameter", "the job and cycle were submitted with another path", {"was": other.path}
                    )
        name = named or f"log-{hashlib.blake2b(path.encode(), digest_size=6).hexdigest()}"
        try:
            check_job(name)
        except Refused as refused:
            raise Wrong(400, "invalid_parameter", f"job_id: {refused.what}") from None
        while len(self._submissions) >= _MOST:
            oldest = next((key for key in self._submissions if key not in self._work), None)
            if oldest is None:
                raise Wrong(503, "job_limit_reached", "too many logs are being read")
            del self._submissions[oldest]
        made = Submission(path, name, cycle, named, user[:200], intent, time.time())
        self._submissions[path] = made
        self.counts["registered"] += 1
        return made

    def _begin(self, submission: Submission, *, ended: bool) -> None:
        work = self._work.get(submission.path)
        if work is None:
            work = self._work[submission.path] = _Work()
            self.counts["analyzing"] += 1
            submission.status = "in_flight" if ended else "pending"
            work.task = asyncio.create_task(self._attribute(submission, work))
        if ended:
            submission.status = "in_flight"
            work.ended.set()

    async def _attribute(self, submission: Submission, work: _Work) -> None:
        try:
            await self._read(submission, work)
            await self._service.ingest.finish(submission.job, submission.attempt, End("exit", time.time()))
            await self._service.jobs.fresh(submission.job, submission.attempt, report=True, within_s=60)
            submission.status = "completed"
        except (Refused, Wrong, OSError) as error:
            submission.status, submission.problem = "failed", str(error)
            log.warning("%s was not attributed: %s", submission.path, error)
        finally:
            self.counts["analyzing"] -= 1
            if submission.status in ("completed", "failed"):
                self.counts[submission.status] += 1
                self._write(submission)
            work.done.set()
            self._work.pop(submission.path, None)

    async def _read(self, submission: Submission, work: _Work) -> None:
        """Read the log into the ingestion until the end was announced and nothing was written for a moment."""
        began = time.monotonic()
        while not work.ended.is_set() and time.monotonic() - began < _IDLE_S:
            if await self._read_on(submission, work):
                began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await work.ended.wait()
        deadline = time.monotonic() + _DRAIN_S
        quiet_since: float | None = None
        while time.monotonic() < deadline:
            if await self._read_on(submission, work):
                quiet_since = None
                continue
            quiet_since = quiet_since or time.monotonic()
            if time.monotonic() - quiet_since >= _QUIET_S:
                return
            await asyncio.sleep(_QUIET_S / 4)

    async def _read_on(self, submission: Submission, work: _Work) -> bool:
        try:
            data = await asyncio.to_thread(self._piece, submission.path, work.position)
        except Wrong as wrong:
            if wrong.code == "not_found" and not work.ended.is_set():
                return False  # a progressive one may come before its file
            raise
        if not data:
            return False
        batch = Batch(
            job=submission.job,
            attempt=submission.attempt,
            source=submission.path,
            offset=work.position,
            data=data,
            labels={"user": submission.user} if submission.user.isprintable() and submission.user else {},
        )
        while True:
            try:
                accepted = await self._service.ingest.accept(batch, wait_s=30)
                break
            except (Busy, Unavailable) as later:
                await asyncio.sleep(later.retry_after_s or 1.0)
        work.position = max(work.position + len(data), accepted.next_offset)
        return True

    def _piece(self, path: str, position: int) -> bytes:
        descriptor = self._opened(path)
        try:
            return os.pread(descriptor, _PIECE, position)
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
