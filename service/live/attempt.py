"""One attempt of a job while it runs: bytes in; kept lines and a diagnosis out, to be stored.

Each part has one owner. ``Received`` (what came, and who waits) belongs to the event loop. ``LiveAttempt`` itself (the
analysis) belongs to the thread of its scanner. ``Turn`` is guarded by the scanner's lock. The parts send messages: through the
``Inbox`` to the scanner's thread, and through the ``AttemptHost`` away from it. Other threads only look at ``Seen``. The
scanner's thread replaces it as a whole and never changes it.

The work of the scanner's thread depends only on the records in the inbox. So after a crash, the same records and the same
snapshot give the same result.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, assert_never

from diagnose.compression.snapshot import StoredLine
from diagnose.compression.workload import HEAD as FINGERPRINTED
from diagnose.compression.workload import KEYS, Fingerprint
from diagnose.decision.lost import Ran
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Course
from diagnose.errors import DiagnoseError
from diagnose.job import Job
from diagnose.knowledge.rules import Rule
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.matching.series import Series
from diagnose.report import Report
from diagnose.shipping.stacks import is_stacks
from service.clock import Clock
from service.live.inbox import Awaited, Entered, Inbox, Labelled, Moved, Note, Stored
from service.live.rows import Rows
from service.live.scanner import Scanner, Turn
from service.live.stream import End, Item, Reading, Stream
from service.live.timers import Pauses, Timers
from service.live.verdict import WITHOUT_A_CAUSE, judged, redacted
from service.projects import DEFAULT, MARK, Grant, parted
from service.segments import DATA, Definition
from service.settings import Settings
from service.store.attempts import Opened
from service.store.flush import Flush, JudgedReport

log = logging.getLogger("diagnose.attempts")

_SLICE, _LEAST_SLICE = 1 << 20, 1 << 16
"""bytes that one attempt may read before it is another one's turn: few at first, and more where they are read quickly"""
_TURN_S = 0.5
"""of the processor, in which no attempt begins another record: what is written to be slow does not keep others waiting"""
_BEHIND_S = 5.0
_GRACE_S = 1.0
"""an attempt that is loaded because bytes came is not silent yet"""
_DUMPED_S = 1.0
"""dumps of several ranks come in pieces: one diagnosis for all"""
_STARTS = 2.0
"""times the patience of a hang, for a job that has made no step yet"""
_STALLED = 4.0
"""times the patience of a hang, for a job that prints and makes no step: it may evaluate for long"""
_WELL = 12.0
"""times the settling time, after words that all went well"""
_ITEM_WEIGHT = 256
_RETRY_S = 1.0
_BLOCKED_S = 0.2
_COURSE = 64
"""points of a sparkline"""
_MOST_UNLEARNED = 500
"""blocks that wait until the kind of job is known"""


class AttemptHost(Protocol):
    """What an attempt asks of the service, from its scanner's thread."""

    @property
    def began(self) -> float:
        """When the service began to listen, by the steady clock. Before that, nobody could send anything."""

    @property
    def unstored(self) -> int: ...
    def weigh(self, weight: int) -> None: ...
    def read(self, size: int) -> None: ...
    def state_of(self, attempt_id: int) -> tuple[bytes | None, list[StoredLine]]: ...
    def database_failed(self, error: Exception) -> None: ...
    def flush_interval(self) -> float: ...
    def flush(self, attempt: LiveAttempt, flush: Flush, rules: Sequence[Rule]) -> None: ...
    def ended(self, attempt: LiveAttempt, end: End) -> None: ...
    def reported(self, report: Report, cost_s: float) -> None: ...
    def settled(self, attempt: LiveAttempt) -> None: ...
    def publish(self, kind: str, **data: Any) -> None: ...
    def workload(self, job: Fingerprint, project: str) -> str | None: ...
    @property
    def learns(self) -> bool: ...
    def learn(self, job: str, workload: str, scans: Sequence[Scan]) -> None: ...


class Waiter(NamedTuple):
    """Somebody who waits until everything up to a record of the journal is stored."""

    lsn: int
    report: bool
    """wait for a diagnosis, too"""
    tell: Callable[[], None]


class Received:
    """What was received of an attempt, and who waits for it. Owned by the event loop."""

    def __init__(self, job: str, opened: Opened, now: float) -> None:
        self.streams: list[Stream] = [Stream.of(state, job, opened.number) for state in opened.sources]
        self.by_name = {stream.definition.source: stream for stream in self.streams}
        self.labels = dict(opened.labels)
        self.durable_lsn = opened.lsn
        self.stored_lsn = opened.lsn
        self.judged_lsn = -1
        """the last record that the stored diagnosis takes into account"""
        self.bytes = 0
        """bytes on disk since it is live"""
        self.unstored_since = 0.0
        """since when the disk has something that the database has not; 0: the database has all"""
        self.unanswered = 0
        """records on their way to disk"""
        self.touched = now
        self.waiters: list[Waiter] = []
        self.admitted: set[Grant] = set()
        """those who have sent something of it and are stored as such"""

    def stored(self, flush: Flush, now: float) -> None:
        """Note that a flush is in the database."""
        self.stored_lsn = flush.lsn
        self.unstored_since = now if flush.lsn < self.durable_lsn else 0.0
        self.judged_lsn = max(self.judged_lsn, flush.judged_lsn)

    def answer(self) -> None:
        """Notify those whose wait is over."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if self.stored_lsn >= waiter.lsn and (not waiter.report or self.judged_lsn >= waiter.lsn):
                waiter.tell()
            else:
                self.waiters.append(waiter)


class Seen(NamedTuple):
    """What the scanner shows to other threads. Each change makes a new one."""

    end: End | None
    last_seen: float
    busy: bool
    """something is not stored yet"""
    awaited: bool
    """its timers must go on although nothing comes, so that its end or a hang is noticed"""
    course: tuple[float | None, ...]
    """the loss so far, in few points"""
    stands: bool
    """it seems to hang: the stacks of its processes are wanted"""


class LiveAttempt:
    """One attempt of one job, in memory."""

    def __init__(self, job: str, opened: Opened, host: AttemptHost, settings: Settings, scanner: Scanner, clock: Clock) -> None:
        # Never changes.
        self.job, self.number = job, opened.number
        self.job_id, self.id = opened.job_id, opened.attempt_id
        self.owner = (job, opened.number)
        self.project = parted(job)[0]
        self.started_at = opened.started_at
        self.scanner = scanner
        self._host, self._settings, self._clock = host, settings, clock
        # Owned by others.
        self.received = Received(job, opened, clock.steady())
        self.turn = Turn()
        self.inbox = Inbox()
        # Owned by the scanner.
        now = clock.steady()
        self.workload = opened.workload
        self._home = f"{self.project}{MARK}" if self.project != DEFAULT else None
        """the kind of job, once enough was read"""
        self.read_bytes = 0
        """it only grows, so other threads may read it"""
        self._slice = _LEAST_SLICE
        """bytes of the next turn"""
        self._analysis: Job | None = None
        self._readings = [Reading.of(state, job, opened.number) for state in opened.sources]
        self._labels = dict(opened.labels)
        self._labels_changed = False
        self._wanted = self._report_wanted = False
        """somebody waits until it is stored; and for a diagnosis"""
        self._lsn = opened.lsn
        self._unlearned: list[Scan] = []
        """what was kept before the workload was known"""
        self._rows = Rows(redact=settings.redact)
        self._counted_lines = 0
        """lines that are in our own numbers"""
        self._flushing = self._dirty = self._anew = False
        self._judged: JudgedReport | None = None
        self._judged_lsn = -1
        self._numbers: dict[str, int] = {}
        """how many values of each of its numbers were stored with the last report"""
        self._last_judged = now
        self._anomaly: str | None = None
        self._phase: str | None = None
        self._course: tuple[float | None, ...] = ()
        self._end: End | None = None
        if opened.state == "ended":
            at = opened.ended_at or opened.last_seen
            self._end = End(opened.ended_by or "exit", at, opened.exit_code, opened.signal, opened.end_state)
        self._settling = 0.0
        self._ended_by = "scheduler"
        self._hung = opened.hangs
        self._stalled = False
        """it hangs because no step came, although it prints"""
        self._cause = False
        """the last diagnosis found a failure in what a job printed that still runs"""
        self._reported = False
        """the training itself reports its steps"""
        self._step: float | None = None
        self._training_at = opened.training_at
        self._progress_at = self._last_seen = self._wall_of_last_data = opened.last_seen
        self._last_data = max(host.began, now - max(0.0, clock.now() - opened.last_seen))
        self._moved_at = self._last_data
        self._pauses = Pauses()
        self._times = Timers(max(self._last_data + settings.hang_s, now + _GRACE_S) if self._end is None else 0.0)
        self.seen = self._look()

    # --- on the event loop ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether it may leave the memory: all of it is stored."""
        mine, turn = self.received, self.turn
        return not (self.inbox or mine.unanswered or mine.waiters or self.seen.busy or turn.scheduled or turn.working)

    @property
    def kind(self) -> str | None:
        """Of which kind of job it is, as the matchers tell them apart: its workload, or at first no more than its project."""
        return self.workload or self._home

    @property
    def end(self) -> End | None:
        return self.seen.end

    @property
    def closed(self) -> bool:
        """Whether it has left the memory."""
        return self.turn.closed

    @property
    def queued(self) -> int:
        """Bytes that were accepted and not read yet."""
        return self.received.bytes - self.read_bytes

    def enter(self, definition: Definition) -> Stream:
        """The stream of a source, entered if it is new."""
        mine = self.received
        stream = mine.by_name.get(definition.source)
        if stream is None:
            stream = mine.by_name[definition.source] = Stream(len(mine.streams), definition)
            mine.streams.append(stream)
            self.inbox.put(Entered(definition))
        return stream

    def push(self, item: Item) -> None:
        """A record is on disk: have it read."""
        self.received.durable_lsn = item.lsn
        self.received.unstored_since = self.received.unstored_since or self._clock.steady()
        self.received.bytes += len(item.data)
        self.inbox.items.append(item)
        self.scanner.schedule(self)

    def label(self, labels: dict[str, str]) -> None:
        """Add these labels to those of the job."""
        mine = self.received
        if any(mine.labels.get(name) != value for name, value in labels.items()):
            mine.labels = {**mine.labels, **labels}
            self.tell(Labelled(mine.labels))

    def wait(self, tell: Callable[[], None], *, report: bool) -> None:
        """Call ``tell`` once all that was received is stored. ``report``: and diagnosed."""
        self.received.waiters.append(Waiter(self.received.durable_lsn, report, tell))
        self.tell(Awaited(report))

    def answer(self) -> None:
        """Something was stored, or there was nothing to store: notify those who waited for it."""
        self.received.answer()
        if left := self.received.waiters:
            self.tell(Awaited(any(waiter.report for waiter in left)))

    def let_go(self) -> None:
        """Free its memory, after the scanner has released it."""
        if self._analysis is not None:
            self._analysis.compression.kept.close()
            self._analysis = None

    # --- from any thread -----------------------------------------------------------------------------------------------------

    def tell(self, note: Note) -> None:
        self.inbox.put(note)
        self.scanner.schedule(self)

    # --- on the scanner's thread ---------------------------------------------------------------------------------------------

    def work(self, matcher: Matcher, *, at_leisure: bool = False) -> bool:
        """Read a slice of the waiting records, and do what is due. True: there is more to read.

        ``at_leisure``: the thread has nothing else to do.
        """
        try:
            self._hear()
            return self._work(matcher, at_leisure)
        finally:
            self._show()

    def next_due(self) -> float:
        return self._times.next()

    def next_leisure(self) -> float:
        times = self._times
        return max(times.leisure, times.retry) if times.leisure else 0.0

    @property
    def waits(self) -> bool:
        """Whether there is something to read."""
        return bool(self.inbox.items)

    def _look(self) -> Seen:
        busy = self._flushing or self._dirty or self._judged is not None
        awaited = bool(self._times.end) or (self._end is None and not self._hung and self._step is not None)
        return Seen(self._end, self._last_seen, busy, awaited, self._course, self._hung and self._end is None)

    def _show(self) -> None:
        self.seen = self._look()

    def _hear(self) -> None:
        """Take the messages of other threads."""
        for note in self.inbox.notes():
            match note:
                case Entered(definition):
                    self._readings.append(Reading(len(self._readings), definition))
                case Labelled(labels):
                    self._labels, self._labels_changed, self._dirty = labels, True, True
                case Awaited(report):
                    self._wanted = True
                    self._report_wanted = self._report_wanted or report
                case Stored():
                    self._flushing = False
                case Moved(at):
                    self._reported = True
                    self._is_alive(at)
                    self._moves(at)
                case _:
                    assert_never(note)

    def _work(self, matcher: Matcher, at_leisure: bool) -> bool:
        now = self._clock.steady()
        if self._times.retry > now:
            return False
        job = self._analysis
        if job is None:
            job = self._load(matcher, now)
            if job is None:
                return False
        job.compression.matcher = matcher  # its workload's own matcher or the general one: both number the rules alike
        read = 0
        blocked = False
        began = time.thread_time()
        while self.inbox.items and read < self._slice and time.thread_time() - began < _TURN_S:
            if self._rows.weight > self._settings.unstored_job or self._host.unstored > self._settings.unstored_all:
                blocked = True
                break
            item, size = self._next_item()
            read += size + _ITEM_WEIGHT
            try:
                self._take(job, item)
            finally:
                self.read_bytes += size
                self._host.read(size)
        quick = time.thread_time() - began < _TURN_S
        self._slice = min(_SLICE, 2 * self._slice) if quick else _LEAST_SLICE
        self._do_what_is_due(job, at_leisure)
        if blocked:
            self._times.retry = self._clock.steady() + _BLOCKED_S
        return bool(self.inbox.items) and not blocked

    def _next_item(self) -> tuple[Item, int]:
        """What to read next. Neighbouring pieces of one source are joined, because the scan is faster on large blocks."""
        items = self.inbox.items
        item = items.popleft()
        if item.kind != DATA or not items:
            return item, len(item.data)
        parts, size, end = [item.data], len(item.data), item.offset + len(item.data)
        while items and size < self._slice and item.continued(items[0], end):
            after = items.popleft()
            parts.append(after.data)
            size += len(after.data)
            end += len(after.data)
            item = item._replace(lsn=after.lsn, at=after.at)
        return (item._replace(data=b"".join(parts)) if len(parts) > 1 else item), size

    def _load(self, matcher: Matcher, now: float) -> Job | None:
        try:
            # A new one has nothing stored, and thousands may begin at once.
            snapshot, kept = self._host.state_of(self.id) if self._lsn else (None, [])
        except Exception as error:
            self._host.database_failed(error)
            self._times.retry = now + _RETRY_S
            return None
        self._times.retry = 0.0
        job = Job(self.job, [reading.source() for reading in self._readings], matcher, self._settings.fold_after)
        job.metadata = {key: self._labels[key] for key in KEYS if key in self._labels}
        if snapshot is not None:
            try:
                job.restore(snapshot, kept)
            except DiagnoseError as error:
                log.error("job %s attempt %d starts again from the beginning of its logs: %s", self.job, self.number, error)
                job = Job(self.job, job.sources, matcher, self._settings.fold_after)
                self._anew = True
        self._analysis = job
        self._counted_lines = job.compression.counts.lines_in
        self._rows.next_ord = job.compression.kept.lines
        self._step = job.compression.last_step
        for number in range(len(job.sources)):
            self._pauses.read(number, now, job.holds(number))
        self._times.pause = self._pauses.next()
        return job

    # --- reading -------------------------------------------------------------------------------------------------------------

    def _take(self, job: Job, item: Item) -> None:
        """Read one record, in the order of the journal."""
        self._lsn = item.lsn
        self._dirty = True
        if item.kind != DATA:
            if not item.lost:
                self._finish(job, End.of(item.data))
            return
        reading = self._reading(job, item.source)
        if not reading.goes_on_at(item):
            self._break_off(job, reading)
        data = reading.take(item, self._settings.duplicates)
        if is_stacks(reading.definition.source):  # taken of a job that stands still: no sign of life
            self._times.diagnose = self._clock.steady() + _DUMPED_S
            self._judged_lsn = -1
        else:
            self._is_alive(item.at)
        scans = job.feed(reading.number, data)
        for scan in scans:
            self._keep(job, reading, scan)
        self._pauses.read(reading.number, self._clock.steady(), job.holds(reading.number))
        self._times.pause = self._pauses.next()
        if self.workload is None and job.compression.counts.bytes_in >= FINGERPRINTED:
            self.workload = self._host.workload(job.fingerprint, self.project)
        if self._host.learns:
            self._learn(scans)

    def _pause(self, job: Job) -> None:
        """Lines have waited long enough for those after them: what they say may be why it stands still."""
        for number in self._pauses.over(self._clock.steady()):
            scans = job.pause(number)
            for scan in scans:
                self._keep(job, self._readings[number], scan)
            self._dirty = self._dirty or bool(scans)
            if self._host.learns:
                self._learn(scans)
        self._times.pause = self._pauses.next()

    def _break_off(self, job: Job, reading: Reading) -> None:
        """Bytes of a source are missing. End its half line, because what comes next does not belong to it, and note the gap."""
        for scan in job.close(reading.number):
            self._keep(job, reading, scan)
        self._times.diagnose = self._clock.steady()
        self._judged_lsn = -1

    def _reading(self, job: Job, number: int) -> Reading:
        if number >= len(self._readings):
            self._hear()  # its message came before the record, perhaps since we last looked
        while len(job.sources) <= number:
            job.sources.append(self._readings[len(job.sources)].source())
        return self._readings[number]

    def _is_alive(self, at: float) -> None:
        """Bytes came at the time of day ``at``, and are read now."""
        now = self._clock.steady()
        self._last_seen = max(self._last_seen, at)
        if self._end is not None and self._end.by != "exit" and at > self._end.at + self._settings.settle_s:
            self._end = None  # it goes on after all
            self._host.publish("job.started", job=self.job, attempt=self.number, again=True)
        self._last_data, self._wall_of_last_data = now, at
        if self._end is None:
            self._times.hang = now + self._settings.hang_s  # `_silent` then asks how slow its steps are
            if self._hung and not self._stalled:
                self._goes_on(now)
        if self._times.end:
            self._times.end = now + self._settling

    def _moves(self, at: float) -> None:
        """It has made a step at the time of day ``at``."""
        now = self._clock.steady()
        self._progress_at, self._moved_at, self._cause = at, now, False
        if self._stalled:
            self._goes_on(now)

    def _goes_on(self, now: float) -> None:
        """It no longer hangs: say so."""
        self._hung = self._stalled = False
        self._times.diagnose = now

    def _learn(self, scans: list[Scan]) -> None:
        """Pass on what was kept for learning, once the workload is known."""
        if self.workload is None:
            if len(self._unlearned) < _MOST_UNLEARNED:
                self._unlearned += scans
            return
        self._host.learn(self.job, self.workload, [*self._unlearned, *scans])
        self._unlearned = []

    def _keep(self, job: Job, reading: Reading, scan: Scan) -> None:
        """Make rows of the kept segments. A line that is evidence of a failure makes a diagnosis due."""
        signs, weight = self._rows.add(job, reading, scan)
        if weight:
            self._host.weigh(weight)
        if signs.ended is not None and self._end is None:  # it has ended, if nothing more comes
            self._settling = self._settings.settle_s * (_WELL if signs.ended == "log" else 1.0)
            self._ended_by = signs.ended
            self._times.end = self._clock.steady() + self._settling
        if signs.hit:
            self._times.hit(self._clock.steady())

    def _finish(self, job: Job, end: End) -> None:
        """Note the end, as the journal has it."""
        if self._end is None or self._end.by != "exit" or end.by == "exit":
            self._end = end
        last: list[Scan] = []
        for reading in self._readings[: len(job.sources)]:
            for scan in job.close(reading.number):
                self._keep(job, reading, scan)
                last.append(scan)
        if self.workload is None and job.compression.counts.bytes_in:
            self.workload = self._host.workload(job.fingerprint, self.project)
        if self._host.learns:
            self._learn(last)
        self._times.end = self._times.hang = 0.0
        self._times.diagnose = self._clock.steady()
        self._judged_lsn = -1

    def _patience(self) -> float:
        """How long a silence is no hang yet. It is longer if steps are slow."""
        found = self._analysis.compression.series("step_time_s") if self._analysis is not None else None
        rhythm = found[1].last if found is not None and found[1].last == found[1].last else 0.0
        return max(self._settings.hang_s, 20.0 * min(rhythm, 86_400.0))

    # --- what is due ---------------------------------------------------------------------------------------------------------

    def _do_what_is_due(self, job: Job, at_leisure: bool) -> None:
        now = self._clock.steady()
        times, items = self._times, self.inbox.items
        if at_leisure and not items and times.leisure and times.leisure <= now:
            times.diagnose = now
        if times.pause and times.pause <= now and not items:
            self._pause(job)
        if times.end and times.end <= now and not items:
            times.end = 0.0
            self._ends(self._ended_by)
        if times.hang and times.hang <= now and not items:
            self._silent(job, now)
        if not items and now - self._moved_at >= self._settings.hang_s:
            self._looks_stalled(job, now)
        if self._report_wanted and not items:
            self._report_wanted = False
            if self._judged_lsn != self._lsn:
                times.diagnose = now
        # While more can be read at once, the answer is worth little; but an attempt that never stops sending gets one too.
        if times.diagnose and times.diagnose <= now and (not items or now - self._last_judged > _BEHIND_S):
            times.judging()
            began = time.thread_time()
            self._diagnose(job)
            cost_s = time.thread_time() - began  # not by the clock: it does not matter here how busy the machine is
            self._last_judged = now
            self.scanner.judging.took(self.owner, now, cost_s)
            times.slower(cost_s, self.scanner.judging.cost_s)
        self._flush_if_due(job, now)

    def _flush_if_due(self, job: Job, now: float) -> None:
        times, items = self._times, self.inbox.items
        news = self._dirty or self._judged is not None
        if news and not times.flush:
            times.flush = now + self._host.flush_interval()
        if self._flushing:
            times.flush = 0.0  # they are notified when that is done
            return
        if self._wanted and not (items or news):
            self._wanted = False
            self._show()
            self._host.settled(self)
        urgent = self._judged is not None or (self._wanted and not items)
        much = self._rows.weight > self._settings.unstored_job // 4
        if (self._dirty and (times.flush <= now or much)) or urgent:
            times.flush = 0.0
            self._wanted = False
            self._flush(job)

    def _ends(self, by: str) -> None:
        self._host.ended(self, End(by, self._wall_of_last_data))

    def _silent(self, job: Job, now: float) -> None:
        """No byte came for long: first it hangs, and in the end it has ended."""
        quiet, patience = now - self._last_data, self._patience()
        starts = self._step is None and not self._reported
        if starts:
            patience *= _STARTS
        if self._end is not None:
            self._times.hang = 0.0
        elif quiet >= self._settings.silence_s:
            self._times.hang = 0.0
            self._ends("silence")
        elif not self._hung and quiet < patience:
            self._times.hang = self._last_data + patience
        elif self._cause:  # it failed, and whoever is left waits for what does not come
            self._times.hang = 0.0
            self._ends("silence")
        else:
            if not self._hung and (not starts or self._on_gpus()):
                self._hung = True
                self._diagnose(job)
            self._times.hang = self._last_data + self._settings.silence_s

    def _looks_stalled(self, job: Job, now: float) -> None:
        """It prints, and makes no step: a rank is gone and the others wait, or it is lost in something else."""
        if self._end is not None or self._hung or (self._step is None and not self._reported):
            return
        stood, patience = now - self._moved_at, self._patience()  # asked last: it looks at all sources
        if self._cause and stood >= patience:
            self._ends("silence")
        elif stood >= _STALLED * patience:
            self._hung = self._stalled = True
            self._diagnose(job)

    def _on_gpus(self) -> bool:
        """Whether somebody said that the job has GPUs, or ranks: other jobs may be silent for as long as they like."""
        gpus = self._labels.get("gpus", "0")
        return (gpus.isascii() and gpus.isdecimal() and int(gpus[:9]) > 0) or any(
            one.definition.rank is not None for one in self._readings
        )

    def _diagnose(self, job: Job) -> None:
        """Make a judged report, to be stored."""
        began = self._clock.steady()
        self._judged_lsn = self._lsn
        job.told = self._end.told if self._end is not None else None
        report = judged(
            job.report(running=self._end is None),
            attempt=self.number,
            end=self._end,
            silent_s=began - (self._moved_at if self._stalled else self._last_data)
            if self._hung and (self._end is None or self._end.by == "silence")
            else None,
            sure=not self._stalled and (self._step is not None or self._reported),
            missing={one.definition.source: one.missing for one in self._readings if one.missing},
        )
        if self._settings.redact:
            report = redacted(report)
        done = self._clock.steady()
        self._times.judged(done)
        self._phase = report.diagnosis.phase
        self._look_for_progress(job)
        found = report.diagnosis
        self._cause = self._end is None and found.root_cause is not None and found.reason not in WITHOUT_A_CAUSE
        self._judged = JudgedReport(report, self._end is not None, self._clock.now(), self._ran())
        self._host.reported(report, done - began)

    def _ran(self) -> Ran | None:
        """How long it ran and stood, as far as its GPUs are known."""
        gpus = self._labels.get("gpus", "")
        if not (gpus.isascii() and gpus.isdigit() and len(gpus) < 8):
            return None
        until = self._end.at if self._end else self._last_seen
        start_up = self._training_at - self.started_at if self._training_at is not None else None
        stood = until - self._progress_at if self._step is not None and self._progress_at is not None else 0.0
        return Ran(max(0.0, until - self.started_at), int(gpus), start_up, max(0.0, stood))

    # --- storing -------------------------------------------------------------------------------------------------------------

    def _flush(self, job: Job) -> None:
        """Hand over to the flusher. The next flush waits for this one; reading goes on."""
        if self._judged is None:  # else they were just asked
            self._look_for_anomalies(job)
        figures = self._figures(job)
        if self._judged is not None:
            counts = {name: metric.count for name, metric in self._judged.report.metrics.items()}
            self._judged.as_stored = frozenset(name for name, count in counts.items() if self._numbers.get(name) == count)
            self._numbers = counts
        rows, weight = self._rows.take()
        lines = job.compression.counts.lines_in
        flush = Flush(
            self.job_id,
            self.id,
            self.number,
            self._lsn,
            job.snapshot(),
            rows,
            figures,
            [reading.state(_finite(job.compression.step_of(reading.number))) for reading in self._changed(job)],
            self._labels if self._labels_changed else None,
            self._judged,
            self._anew,
            judged_lsn=self._judged_lsn if self._judged is not None else -1,
            weight=weight,
            new_lines=max(0, lines - self._counted_lines),
        )
        self._counted_lines = lines
        self._judged, self._dirty, self._anew, self._labels_changed = None, False, False, False
        self._flushing = True
        self._show()
        self._host.flush(self, flush, job.compression.matcher.rules)

    def _changed(self, job: Job) -> list[Reading]:
        changed = [reading for reading in self._readings[: len(job.sources)] if reading.changed]
        for reading in changed:
            reading.changed = False
        return changed

    def _look_for_progress(self, job: Job) -> float | None:
        """The last step. When the first and the last one came is noted."""
        step = job.compression.last_step
        if step is not None and step != self._step:
            if self._step is None:
                self._training_at = self._last_seen
            self._step = step
            self._moves(self._last_seen)
        return step

    def _figures(self, job: Job) -> dict[str, Any]:
        """The columns of the attempt."""
        log_, counts, end = job.compression, job.compression.counts, self._end
        step = self._look_for_progress(job)
        loss = log_.series("loss")
        self._course = _course(loss[1]) if loss is not None else ()
        figures = {
            "last_seen": self._last_seen,
            "state": "running" if end is None else "ended",
            "ended_at": end.at if end else None,
            "ended_by": end.by if end else None,
            "exit_code": end.exit_code if end else None,
            "signal": end.signal if end else None,
            "end_state": end.state if end else None,
            "lines_in": counts.lines_in,
            "bytes_in": counts.bytes_in,
            "lines_kept": counts.lines_kept,
            "bytes_kept": counts.bytes_kept,
            "dropped": log_.dropped_by_kind(),
            "hits": log_.dropped_by_rule(),
            "phase": self._phase,
            "step": _finite(step),
            "loss": _finite(loss[1].last) if loss is not None else None,
            "training_at": self._training_at,
            "progress_at": self._progress_at,
            "workload": self.workload,
        }
        if self._judged is not None:
            figures["outcome"] = self._judged.report.outcome
        return figures

    def _look_for_anomalies(self, job: Job) -> None:
        """Look for a hang or a bad loss although no line is evidence: quickly, at each flush."""
        if self._end is not None:
            return
        compression = job.compression
        known = {name: found for name in compression.series_names if (found := compression.series(name)) is not None}
        alarm = next((one for one in findings(Course(known, running=True)) if one.reason is not None), None)
        anomaly = f"{alarm.detector} {alarm.line}" if alarm is not None else None
        if anomaly != self._anomaly:
            self._anomaly = anomaly
            self._times.diagnose = self._times.diagnose or self._clock.steady()


def _course(series: Series) -> tuple[float | None, ...]:
    """The means of a series, in at most ``_COURSE`` points."""
    totals, finite = series.column("total"), series.column("finite")
    width = -(-len(totals) // _COURSE) or 1
    parts = ((sum(totals[at : at + width]), sum(finite[at : at + width])) for at in range(0, len(totals), width))
    return tuple(_finite(total / count) if count else None for total, count in parts)


def _finite(value: float | None) -> float | None:
    return value if value is not None and value == value and abs(value) != float("inf") else None
