"""The live jobs: which attempts are in memory, who reads them, and when they are stored, end, and leave.

This is the host of the attempts, and the only module that knows all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from diagnose.compression.snapshot import StoredLine
from diagnose.compression.workload import Fingerprint
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.matching.scan import Scan
from diagnose.report import Report
from service.clock import SYSTEM, Clock
from service.errors import Conflict, Unavailable
from service.events import Events
from service.journal import Journal
from service.live.attempt import LiveAttempt
from service.live.flusher import Flusher
from service.live.inbox import Awaited, Stored
from service.live.matchers import Matchers
from service.live.scanner import Scanner
from service.live.stream import End, Item
from service.projects import Grant
from service.segments import DATA, Damage, Record
from service.settings import Settings
from service.store import Store, confirmations, deletions
from service.store import attempts as stored
from service.store.attempts import Asked
from service.store.flush import Flush
from service.store.learned_rules import learned_rules
from service.store.tasks import Wanted
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.jobs")

_SWEEP_S = 5.0
_ENDED_STAYS_S = 30.0
_FLUSHES_S = 40.0
"""about so many snapshots per second may all jobs make together"""
_MOST_INTERVAL_S = 60.0
_OPENED_AT_ONCE = 256
_RELEASED_S = 3.0


class Learner(Protocol):
    """Learns from what is read, and is asked about failures."""

    @property
    def learns(self) -> bool: ...
    def feed(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        """Take what was kept of a job. A scanner's thread calls this; it does not wait."""

    def tasks_of(self, flush: Flush, rules: Sequence[Rule]) -> tuple[Wanted, ...]:
        """The tasks that the report of ``flush`` makes, to be stored with it. A scanner's thread calls this."""

    def look(self) -> None:
        """Such tasks were stored."""


class Jobs:
    """All live attempts of one service. Owned by the event loop, except for the methods that other threads call."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        events: Events,
        telemetry: Telemetry,
        settings: Settings,
        rules: RuleSet | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.store, self.journal, self.events, self.telemetry = store, journal, events, telemetry
        self.settings, self._clock = settings, clock
        self.began = clock.steady()
        self._attempts: dict[tuple[str, int], LiveAttempt] = {}
        self._latest: dict[str, int] = {}
        self._wanted: list[tuple[Asked, asyncio.Future[stored.Opened | None]]] = []
        self._opener: asyncio.Task[None] | None = None
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.rules = rules if rules is not None else load()
        self.matchers = Matchers(self.rules, learned_rules(store), most_workloads=settings.workload_matchers)
        self._scanners = [Scanner(number, self.matchers, clock) for number in range(settings.scanners)]
        self.learning: Learner | None = None
        """set by the service"""
        self._flusher = Flusher(store, telemetry, clock)
        self._closing: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.accepted_bytes = 0
        self.lost_bytes = 0
        """bytes that were accepted and can no longer be read"""
        self._unattributed = 0
        """those of them whose owner nobody knows"""
        self._recovered_at = 0.0
        self.end_attempt: Callable[[LiveAttempt, End], None] = lambda attempt, end: None
        """puts an end into the journal: set by ``ingest``"""
        self._weighing = threading.Lock()
        """for the next two: what all scanners have read, and how much of it waits for the database"""
        self._unstored = 0
        self._read_bytes = 0
        self._telling = threading.Lock()
        """for the next two: how other threads reach the event loop, and their messages from before there was one"""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._untold: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._leaving: set[tuple[str, int | None]] = set()
        """attempts, or all of a job, that are about to be deleted"""

    # --- coming and going ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make all scanners ready, one after the other: the first compiles the rules for all, if they are not compiled yet."""
        for scanner in self._scanners:
            if not scanner.prepared.is_set():
                scanner.start()
                scanner.prepared.wait()

    def recover(self) -> int:
        """Read again what the journal has and the database has not. Runs before the first request. Returns the number of
        records.
        """
        self.prepare()
        self.matchers.refresh()
        self._flusher.start()
        again = 0
        gone = self.store.read(deletions.deleted)
        skipped: dict[tuple[str, int], int] = {}
        over: set[tuple[str, int]] = set()  # their kept lines are deleted: as in ``open``, they cannot go on
        for record in self.journal.recover():
            if isinstance(record, Damage):
                self._unattributed += record.size
                self._lose(record.size, f"{record.path.name} from byte {record.at} on; nobody knows whose they were")
                continue
            definition = record.stream
            if record.lsn <= gone.get(definition.job, 0) or definition.owner in over:
                skipped[definition.owner] = record.lsn
                continue
            attempt = self._attempts.get(definition.owner)
            if attempt is None:
                opened = self._open(definition.job, definition.attempt)
                if opened.lines_deleted is not None:
                    over.add(definition.owner)
                    skipped[definition.owner] = record.lsn
                    continue
                attempt = self._register(definition.job, opened)
            if record.lsn > attempt.received.durable_lsn:
                again += 1
                if record.lost:
                    whose = f"job {definition.job} attempt {definition.attempt} {definition.source}"
                    self._lose(record.lost, f"{whose} from byte {record.offset} on")
                self._read_again(attempt, record)
        self._recovered_at = self._clock.now()
        for owner, lsn in skipped.items():
            self.journal.stored(owner, lsn)
        if again:
            log.info("read %d records of the journal again", again)
        return again

    def _read_again(self, attempt: LiveAttempt, record: Record) -> None:
        """Read a record that the database does not have yet."""
        source, at = -1, record.at_ms / 1000
        if record.kind == DATA:
            stream = attempt.enter(record.stream)
            stream.recovered(record.offset, record.key, at, record.data, record.lost)
            source = stream.number
        while attempt.queued > self.settings.queue_job or self.queued > self.settings.queue_all:
            time.sleep(0.01)
        self.push(attempt, Item(record.lsn, record.kind, source, record.offset, record.key, at, record.data, record.lost))

    def _lose(self, size: int, where: str) -> None:
        log.error("%d accepted bytes are lost: the disk damaged them in the journal: %s", size, where)
        self.lost_bytes += size
        self.telemetry.lost_bytes.inc(size)

    def may_lack(self, attempt: LiveAttempt, size: int) -> bool:
        """Whether ``size`` bytes of ``attempt`` may be among the lost bytes whose owner is unknown."""
        return size <= self._unattributed and attempt.started_at <= self._recovered_at

    def start(self) -> None:
        """Begin on the event loop, after ``recover``."""
        with self._telling:
            self._loop = asyncio.get_running_loop()
            untold, self._untold = self._untold, []
        for function, values in untold:
            function(*values)
        for attempt in self._attempts.values():  # some were stored before the journal knew all of its segments
            self.journal.stored(attempt.owner, attempt.received.stored_lsn)
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    @property
    def prepared(self) -> bool:
        """Whether all scanners have compiled their rules."""
        return all(scanner.prepared.is_set() for scanner in self._scanners)

    async def close(self) -> None:
        """Store what was read, and stop. Whoever closes it again waits for the same."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        for attempt in list(self._attempts.values()):
            attempt.tell(Awaited(report=False))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._flusher.up and not all(one.idle for one in self._attempts.values()):
            await asyncio.sleep(0.02)
        for scanner in self._scanners:
            await asyncio.to_thread(scanner.close)
        await asyncio.to_thread(self._flusher.close)

    async def open(
        self, job: str, number: int | None, labels: dict[str, str] | None = None, grant: Grant | None = None
    ) -> LiveAttempt:
        """The live attempt, which is loaded or made if necessary.

        ``number`` None: the latest. ``grant``: who sends something of it; None: the service itself.
        """
        attempt = self._live(job, number)
        if attempt is None:
            lock = self._opening.get(job)
            if lock is None:
                lock = self._opening[job] = asyncio.Lock()
            async with lock:
                attempt = self._live(job, number)
                if attempt is None:
                    self._check_leaving(job, number)
                    opened = await self._opened(Asked(job, number, labels or {}, self._clock.now(), grant))
                    self._check_leaving(job, opened.number)
                    if opened.lines_deleted is not None:
                        raise Conflict(
                            f"attempt {opened.number} ended long ago, and its log was deleted",
                            where=job,
                            remedy="send what is new as another attempt",
                        )
                    new = opened.lsn == 0 and not opened.sources
                    attempt = self._register(job, opened)
                    if opened.made and grant is not None:
                        attempt.received.admitted.add(grant)
                    if new:
                        self.events.publish("job.started", job=job, attempt=opened.number)
                        if opened.number > 1:
                            await self._supersede(job, opened.number)
        if grant is not None and grant not in attempt.received.admitted:
            await self._admit(attempt, grant)
        attempt.received.touched = self._clock.steady()
        attempt.label(labels or {})
        return attempt

    async def _admit(self, attempt: LiveAttempt, grant: Grant) -> None:
        """Write who speaks of an attempt to disk, before anything that they say is taken."""
        await self.store.awrite(lambda connection: confirmations.enter_speaker(connection, attempt.id, grant))
        attempt.received.admitted.add(grant)

    def _check_leaving(self, job: str, number: int | None) -> None:
        if (job, None) in self._leaving or (number is not None and (job, number) in self._leaving):
            raise Unavailable("this is being deleted", where=job, remedy="send it again in a moment", retry_after_s=2)

    @contextlib.asynccontextmanager
    async def withdrawn(self, job: str, number: int | None = None) -> AsyncIterator[bool]:
        """Within this context an ended attempt, or all of a job, is out of memory and stays so.

        Yields False if it is busy, still runs, or was withdrawn by somebody else. A second one could otherwise delete what was
        made again under the same name.
        """
        if any(name == job and (number is None or other in (None, number)) for name, other in self._leaving):
            yield False
            return
        lock = self._opening.get(job)
        if lock is None:
            lock = self._opening[job] = asyncio.Lock()
        self._leaving.add((job, number))
        try:
            async with lock:  # those who were about to open it have done so
                mine = [one for one in self._attempts.values() if one.job == job and number in (None, one.number)]
            out = True
            for attempt in mine:
                await self.fresh(job, attempt.number)
                out = out and attempt.end is not None and await self._released(attempt)
                if out and attempt.owner in self._attempts:
                    self._drop(attempt)
            yield out
        finally:
            self._leaving.discard((job, number))

    async def _released(self, attempt: LiveAttempt) -> bool:
        deadline = time.monotonic() + _RELEASED_S
        while not attempt.closed and not attempt.scanner.release(attempt):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def live(self, job: str, number: int | None) -> LiveAttempt | None:
        """The attempt if it is in memory."""
        return self._live(job, number)

    @property
    def projects(self) -> set[str]:
        """The projects that have attempts in memory."""
        return {one.project for one in self._attempts.values()}

    def running(self, project: str) -> int:
        """How many attempts of a project are in memory and have not ended."""
        return sum(1 for one in self._attempts.values() if one.project == project and one.end is None)

    def sources(self, project: str) -> int:
        """How many sources those have."""
        mine = (one for one in self._attempts.values() if one.project == project and one.end is None)
        return sum(len(one.received.streams) for one in mine)

    def courses(self, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[float | None, ...]]:
        """The loss so far of those in memory. A job that goes well has no report to show it."""
        found = {owner: self._attempts[owner].seen.course for owner in wanted if owner in self._attempts}
        return {owner: course for owner, course in found.items() if course}

    def _live(self, job: str, number: int | None) -> LiveAttempt | None:
        wanted = self._latest.get(job) if number is None else number
        return self._attempts.get((job, wanted)) if wanted is not None else None

    async def _opened(self, wanted: Asked) -> stored.Opened:
        """The attempt from the database, made if it is new.

        All attempts that are wanted at the same time share one transaction: a thousand jobs may begin in one second, and each
        commit waits for the disk.
        """
        found: asyncio.Future[stored.Opened | None] = asyncio.get_running_loop().create_future()
        self._wanted.append((wanted, found))
        if self._opener is None:
            self._opener = asyncio.create_task(self._open_wanted())
        opened = await found
        if opened is None:  # one of them was refused, perhaps only that one: try each alone
            opened = await self.store.awrite(lambda connection: stored.open_attempt(connection, *wanted))
        return opened

    async def _open_wanted(self) -> None:
        while self._wanted:
            some, self._wanted = self._wanted[:_OPENED_AT_ONCE], self._wanted[_OPENED_AT_ONCE:]
            opened: list[stored.Opened] | list[None] = [None] * len(some)
            with contextlib.suppress(Exception):  # then each of them meets the error again, and raises it
                opened = await self.store.awrite(
                    lambda connection, some=some: stored.open_attempts(connection, [one for one, _ in some])  # type: ignore[misc]
                )
            for (_, found), one in zip(some, opened, strict=True):
                if not found.done():
                    found.set_result(one)
        self._opener = None

    def _open(self, job: str, number: int) -> stored.Opened:
        now = self._clock.now()
        return self.store.write(lambda connection: stored.open_attempt(connection, job, number, {}, now))

    def _register(self, job: str, opened: stored.Opened) -> LiveAttempt:
        scanner = min(self._scanners, key=lambda scanner: scanner.attempts)
        attempt = self._attempts[job, opened.number] = LiveAttempt(job, opened, self, self.settings, scanner, self._clock)
        self._latest[job] = max(opened.latest, self._latest.get(job, 0))
        self.telemetry.live_jobs.set(len(self._attempts))
        scanner.adopt(attempt)
        return attempt

    async def _supersede(self, job: str, number: int) -> None:
        """A new attempt has begun, so the earlier ones have ended."""
        earlier = await self.store.aread(lambda connection: stored.running_before(connection, job, number))
        for before in earlier:
            attempt = self._attempts.get((job, before)) or await self._reopen(job, before)
            self.end_attempt(attempt, End("superseded", max(attempt.seen.last_seen, attempt.started_at)))

    async def _reopen(self, job: str, number: int) -> LiveAttempt:
        opened = await self._opened(Asked(job, number, {}, self._clock.now()))
        return self._attempts.get((job, number)) or self._register(job, opened)

    def push(self, attempt: LiveAttempt, item: Item) -> None:
        """A record is on disk: have it read."""
        self.accepted_bytes += len(item.data)
        attempt.push(item)

    @property
    def queued(self) -> int:
        """Bytes that are on disk and not read yet."""
        return self.accepted_bytes - self._read_bytes

    def standing(self, longest_s: float) -> list[int]:
        """The scanners that make no progress."""
        return [scanner.number for scanner in self._scanners if scanner.stands(longest_s)]

    def lag(self) -> tuple[float, float]:
        """(age of the oldest byte that is not read, how far the database is behind), in seconds."""
        now, steady = self._clock.now(), self._clock.steady()
        unread, unstored = 0.0, 0.0
        for attempt in self._attempts.values():
            with contextlib.suppress(IndexError):  # it was read meanwhile
                unread = max(unread, now - attempt.inbox.items[0].at)
            if attempt.received.unstored_since:
                unstored = max(unstored, steady - attempt.received.unstored_since)
        return unread, unstored

    @property
    def database_up(self) -> bool:
        return self._flusher.up

    def __len__(self) -> int:
        return len(self._attempts)

    async def fresh(self, job: str, number: int | None = None, *, report: bool = False, within_s: float = 5.0) -> None:
        """Have what was accepted so far stored (and diagnosed), so that the database has it. After ``within_s`` it returns
        anyway.
        """
        attempt = self._live(job, number)
        if attempt is None:
            return
        if attempt.idle and not report and attempt.received.stored_lsn >= attempt.received.durable_lsn:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        attempt.wait(done, report=report)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(future, within_s)

    # --- the host: called by scanners and the flusher -----------------------------------------------------------------------

    @property
    def unstored(self) -> int:
        return self._unstored

    def weigh(self, weight: int) -> None:
        with self._weighing:
            self._unstored += weight

    def read(self, size: int) -> None:
        with self._weighing:
            self._read_bytes += size
        self.telemetry.read_bytes.inc(size)

    def state_of(self, attempt_id: int) -> tuple[bytes | None, list[StoredLine]]:
        return self.store.read(lambda connection: stored.state_of(connection, attempt_id))

    def database_failed(self, error: Exception) -> None:
        log.error("the database does not answer: %s", error)

    def flush_interval(self) -> float:
        return min(max(self.settings.flush_s, len(self._attempts) / _FLUSHES_S), _MOST_INTERVAL_S)

    @property
    def learns(self) -> bool:
        return self.learning is not None and self.learning.learns

    def workload(self, job: Fingerprint, project: str) -> str | None:
        return self.matchers.workload(job, project)

    def learn(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        if self.learning is not None:
            self.learning.feed(job, workload, scans)

    def flush(self, attempt: LiveAttempt, flush: Flush, rules: Sequence[Rule]) -> None:
        if self.learning is not None and flush.judged is not None:
            flush.judged.tasks = self.learning.tasks_of(flush, rules)
        self._flusher.put(flush, lambda flush: self._flushed(attempt, flush))

    def _flushed(self, attempt: LiveAttempt, flush: Flush) -> None:
        """A flush is stored. Runs on the flusher's thread."""
        self.weigh(-flush.weight)
        self.telemetry.kept_lines.inc(len(flush.rows))
        self.telemetry.read_lines.inc(flush.new_lines)
        self._on_loop(self._tell, attempt, flush)  # before the scanner can report what follows
        try:
            self.journal.stored(attempt.owner, flush.lsn)
        finally:
            attempt.tell(Stored())  # else nothing more of this attempt would be stored

    def _on_loop(self, function: Callable[..., None], *values: Any) -> None:
        """Have the event loop call ``function`` as soon as the loop runs."""
        with self._telling:
            if self._loop is None:
                self._untold.append((function, values))
            elif not self._loop.is_closed():
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(function, *values)

    def _tell(self, attempt: LiveAttempt, flush: Flush) -> None:
        """A flush is stored. Runs on the event loop."""
        attempt.received.stored(flush, self._clock.steady())
        attempt.answer()
        figures = flush.figures
        judged = flush.judged
        if judged is None:
            names = ("step", "loss", "phase", "lines_in", "lines_kept", "bytes_in", "last_seen", "state")
            self.events.publish(
                "job.progress", job=attempt.job, attempt=attempt.number, **{name: figures[name] for name in names}
            )
            return
        diagnosis = judged.report.diagnosis
        facts: dict[str, Any] = {
            "job": attempt.job,
            "attempt": attempt.number,
            "outcome": judged.report.outcome,
            "category": diagnosis.category,
            "reason": diagnosis.reason,
            "summary": diagnosis.summary,
            "nodes": diagnosis.suspects.nodes,
            "group": flush.group_id,
        }
        now = self._clock.now()
        self.telemetry.to_diagnosis_s.observe(max(0.0, now - figures["last_seen"]))
        self.telemetry.traces.add(
            "diagnosis",
            figures["last_seen"],
            now,
            attempt=(attempt.job, attempt.number),
            outcome=judged.report.outcome,
            reason=diagnosis.reason,
            final=judged.final,
        )
        if diagnosis.root_cause is not None or judged.report.outcome == "failed":
            self.events.publish("job.diagnosed", final=judged.final, by=diagnosis.by, **facts)
        if judged.tasks and self.learning is not None:
            self.learning.look()
        if flush.alarm is not None:
            self.events.publish("job.alarm", alarm=flush.alarm, **facts)
        if judged.final:
            self.events.publish("job.ended", by=figures["ended_by"], exit_code=figures["exit_code"], **facts)
        if flush.regressed:
            self.events.publish("failure.regressed", **facts)

    def settled(self, attempt: LiveAttempt) -> None:
        """Somebody waits, and there is nothing to store."""
        self._on_loop(attempt.answer)

    def ended(self, attempt: LiveAttempt, end: End) -> None:
        """The log of an attempt, or its silence, says that it has ended. This end goes into the journal like any other."""
        self._on_loop(self._end_if_still, attempt, end)

    def _end_if_still(self, attempt: LiveAttempt, end: End) -> None:
        if attempt.end is None and not attempt.closed:
            self.end_attempt(attempt, end)

    def reported(self, report: Report, cost_s: float) -> None:
        self.telemetry.reports.labels(report.outcome).inc()
        self.telemetry.report_s.observe(cost_s)

    def publish(self, kind: str, **data: Any) -> None:
        self.events.publish_from_thread(kind, **data)

    # --- sweeping ------------------------------------------------------------------------------------------------------------

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self._sweep()
            except Exception as error:
                log.error("the regular look after live jobs failed, and is repeated: %s", error)

    async def _sweep(self) -> None:
        self.evict()
        t = self.telemetry
        t.live_jobs.set(len(self._attempts))
        t.project_jobs.clear()
        for project, running in Counter(one.project for one in self._attempts.values() if one.end is None).items():
            t.project_jobs.labels(project).set(running)
        t.queued_bytes.set(self.queued)
        t.unstored_bytes.set(self._unstored)
        t.journal_bytes.set(self.journal.size)
        t.streams.set(self.events.listeners)
        if not self._flusher.up:
            return
        before = self._clock.now() - self.settings.silence_s
        for job, number in await self.store.aread(lambda connection: stored.silent(connection, before)):
            attempt = self._live(job, number)
            if attempt is None:
                attempt = await self._reopen(job, number)
                self._end_if_still(attempt, End("silence", attempt.seen.last_seen))
        quiet = self._clock.now() - self.settings.hang_s
        for job, number in await self.store.aread(lambda connection: stored.quiet(connection, quiet)):
            if self._live(job, number) is None:  # not since a restart: in memory it would itself notice that it hangs
                await self._reopen(job, number)

    def evict(self) -> int:
        """Drop what has ended, and the least used if there are too many. What is stored can be loaded again."""
        now = self._clock.steady()
        gone = 0
        excess = len(self._attempts) - self.settings.most_live
        by_age = sorted(self._attempts.values(), key=lambda attempt: attempt.received.touched) if excess > 0 else ()
        oldest = {attempt.owner for attempt in by_age[: max(0, excess)]}
        for owner, attempt in list(self._attempts.items()):
            over = attempt.end is not None and now - attempt.received.touched > _ENDED_STAYS_S
            quiet = now - attempt.received.touched > 2 * self.settings.hang_s and not attempt.seen.awaited
            if (over or quiet or owner in oldest) and attempt.scanner.release(attempt):
                self._drop(attempt)
                gone += 1
        return gone

    def _drop(self, attempt: LiveAttempt) -> None:
        """Remove it from memory, after its scanner has released it."""
        attempt.let_go()
        del self._attempts[attempt.owner]
        if self._latest.get(attempt.job) == attempt.number:
            del self._latest[attempt.job]
