"""One attempt of a job while it is live: bytes in, kept lines and a diagnosis out, to be stored.

Two threads touch an attempt. The event loop accepts: it owns what was *received*. One scanner thread reads: it owns the
analysis. They share ``pending``, a queue of what is on disk and not yet read, in the order of the journal. Whatever the scanner
did is a function of that queue, so after a crash the same queue from the same snapshot gives the same result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.compression.kept_log import NOTABLE
from diagnose.compression.snapshot import NOTABLE_ID
from diagnose.compression.workload import HEAD as FINGERPRINTED
from diagnose.compression.workload import KEYS
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Course
from diagnose.errors import DiagnoseError
from diagnose.job import Job
from diagnose.matching.scan import KEPT, Scan
from diagnose.matching.series import Series
from diagnose.reading.prefixes import Origin, speaker
from diagnose.reading.sources import Source
from diagnose.redaction.stream import LineConcealer
from service.journal import DATA, Definition
from service.live.verdict import judged, redacted
from service.settings import Settings
from service.store.attempts import Flush, KeptRow, Opened, SourceState, Verdict

if TYPE_CHECKING:
    from diagnose.matching.matcher import Matcher
    from service.live.scanner import Desk, Scanner

log = logging.getLogger("diagnose.attempts")

HEAD = 256
_KEY = struct.Struct("<QQ")
_SLICE = 1 << 20
"""bytes that one attempt may have read before another has its turn"""
_DEBOUNCE_S, _AT_LATEST_S = 0.2, 0.6
_SHORTEST_GAP_S, _LONGEST_GAP_S = 0.3, 60.0
_COSTS = 20.0
"""a job that fails on and on may have this part of a thread for its diagnoses: one twentieth"""
_CALM_S = 20.0
_BEHIND_S = 5.0
_BEGAN = time.monotonic()
_GRACE_S = 1.0
"""who is loaded because bytes come for it is not silent"""
_WELL = 12.0
"""times the settling time, after words that all went well"""
_ROW_WEIGHT = 300
_COURSE = 64
"""points of a sparkline"""
_MOST_UNLEARNED = 500
"""blocks that wait until it is known what kind of job it is"""


class Item(NamedTuple):
    """A record on disk that is to be read."""

    lsn: int
    kind: int
    stream: Stream | None
    offset: int
    key: int
    at: float
    data: bytes


class Stream:
    """One source of an attempt."""

    def __init__(self, number: int, definition: Definition) -> None:
        self.number = number
        self.definition = definition
        # of the event loop
        self.received = 0
        """on its way to disk, or there"""
        self.durable = 0
        self.keys: OrderedDict[int, float] = OrderedDict()
        self.head = b""
        # of the scanner
        self.read = 0
        self.read_keys: deque[tuple[int, float]] = deque()
        self.read_head = b""
        self.last_seen = 0.0
        self.secrets = LineConcealer()
        self.changed = True

    @staticmethod
    def of(state: SourceState, job: str, attempt: int) -> Stream:
        stream = Stream(state.number, Definition(job, attempt, state.name, state.rank, state.node))
        stream.received = stream.durable = stream.read = state.received
        stream.head = stream.read_head = state.head
        for key, at_ms in _KEY.iter_unpack(state.keys):
            stream.keys[key] = at_ms / 1000
            stream.read_keys.append((key, at_ms / 1000))
        stream.last_seen = state.last_seen
        stream.changed = False
        return stream

    def state(self) -> SourceState:
        keys = b"".join(_KEY.pack(key, int(at * 1000)) for key, at in self.read_keys)
        d = self.definition
        return SourceState(self.number, d.source, d.rank, d.node, self.read, self.read_head, keys, self.last_seen)

    def source(self) -> Source:
        told = Origin(rank=self.definition.rank, node=self.definition.node)
        return Source(self.definition.source, None, told=told)


@dataclass(slots=True)
class End:
    """How an attempt ended."""

    by: str
    at: float
    exit_code: int | None = None
    signal: int | None = None

    def as_bytes(self) -> bytes:
        return json.dumps({"by": self.by, "at": self.at, "exit_code": self.exit_code, "signal": self.signal}).encode()

    @staticmethod
    def of(data: bytes) -> End:
        return End(**json.loads(data))


@dataclass(slots=True)
class _Times:
    """When something is to be done next, by the monotonic clock; 0: nothing."""

    flush: float = 0.0
    diagnose: float = 0.0
    first_hit: float = 0.0
    end: float = 0.0
    hang: float = 0.0
    retry: float = 0.0

    def next(self) -> float:
        return min((at for at in (self.flush, self.diagnose, self.end, self.hang, self.retry) if at), default=0.0)


class Attempt:
    """One attempt of one job, in memory."""

    def __init__(self, job: str, opened: Opened, desk: Desk, settings: Settings) -> None:
        self.job, self.number = job, opened.number
        self.job_id, self.id = opened.job_id, opened.attempt_id
        self.owner = (job, opened.number)
        self._desk, self._settings = desk, settings
        # --- of the event loop
        self.streams: list[Stream] = [Stream.of(state, job, opened.number) for state in opened.sources]
        self.by_name = {stream.definition.source: stream for stream in self.streams}
        self.durable_lsn = opened.lsn
        self.accepted_bytes = 0
        self.unanswered = 0
        self.labels = dict(opened.labels)
        self.touched = time.monotonic()
        self.waiters: list[tuple[int, bool, Callable[[], None]]] = []
        """(LSN, whether a report is wanted, whom to tell)"""
        # --- shared
        self.pending: deque[Item] = deque()
        self.labels_changed = False
        self.wanted = False
        """somebody asks: flush soon"""
        self.report_wanted = False
        # --- of the scanner
        self.analysis: Job | None = None
        self.lsn = self.stored_lsn = opened.lsn
        self.started_at = opened.started_at
        self.workload = opened.workload
        """the kind of job that it is, once enough was read to tell"""
        self._unlearned: list[Scan] = []
        """what was kept before that"""
        self.last_seen = opened.last_seen
        self.end: End | None = None
        if opened.state == "ended":
            self.end = End(opened.ended_by or "exit", opened.ended_at or opened.last_seen, opened.exit_code, opened.signal)
        self.flushing: Flush | None = None
        self._rows: list[KeptRow] = []
        self._weight = 0
        self._next_ord = 0
        self._anew = False
        self._dirty = False
        self._verdict: Verdict | None = None
        self._judged_lsn = -1
        self.stored_judged_lsn = -1
        self._judged_at = 0.0
        self._gap = _SHORTEST_GAP_S
        self._last_hit = 0.0
        self._last_judged = time.monotonic()
        self._anomaly: str | None = None
        self._hung = opened.hangs
        self._step: float | None = None
        self._progress_at = opened.last_seen
        self._training_at = opened.training_at
        self._cost = 0.0
        """seconds that the last report took"""
        # Since we listen: while we did not, nobody could tell us anything.
        self._last_data = max(_BEGAN, time.monotonic() - max(0.0, time.time() - opened.last_seen))
        self._wall_of_last_data = opened.last_seen
        self._times = _Times()
        self.phase: str | None = None
        self.course: tuple[float | None, ...] = ()
        """the loss so far, in few points: whoever looks on reads it whole, for it is replaced and not changed"""
        self.read_bytes = 0
        self.counted_lines = 0
        """that our own numbers have"""
        self.scheduled = self.working = self.closed = False
        self.scanner: Scanner
        """set by who registers it"""
        self.due = 0.0
        if self.end is None:
            self._times.hang = max(self._last_data + settings.hang_s, time.monotonic() + _GRACE_S)

    # --- on the event loop ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing of it is only here: it may leave the memory."""
        return not (
            self.pending
            or self.unanswered
            or self.flushing
            or self._dirty
            or self.waiters
            or self._verdict
            or self.scheduled
            or self.working
        )

    @property
    def awaited(self) -> bool:
        """It is looked at again by itself, though nothing comes: its end or a hang is to be noticed."""
        return bool(self._times.end) or (self.end is None and not self._hung and self._step is not None)

    @property
    def queued(self) -> int:
        """Bytes that were accepted and not read yet."""
        return self.accepted_bytes - self.read_bytes

    # --- on the scanner's thread ---------------------------------------------------------------------------------------------

    def work(self, matcher: Matcher) -> bool:
        """Read a slice of what waits, and do what is due. True: there is more to read."""
        now = time.monotonic()
        if self._times.retry > now:
            return False
        if self.analysis is None and not self._load(matcher, now):
            return False
        if self.analysis is not None:
            self.analysis.compression.matcher = matcher  # the workload's own, or what it was: their numbers are the same
        read = 0
        blocked = False
        while self.pending and read < _SLICE:
            if self._weight > self._settings.unstored_job or self._desk.unstored > self._settings.unstored_all:
                blocked = True
                break
            item, size = self._next_item()
            read += size + 256
            try:
                self._take(item)
            finally:
                self.read_bytes += size
                self._desk.read(self, size)
        self._do_what_is_due()
        if blocked:
            self._times.retry = time.monotonic() + 0.2
        return bool(self.pending) and not blocked

    def _next_item(self) -> tuple[Item, int]:
        """What to read next: neighbouring pieces of one source as one, for the scan is quicker on large blocks."""
        item = self.pending.popleft()
        if item.kind != DATA or not self.pending:
            return item, len(item.data)
        parts, size, end = [item.data], len(item.data), item.offset + len(item.data)
        while self.pending and size < _SLICE:
            after = self.pending[0]
            if after.kind != DATA or after.stream is not item.stream or after.offset != end or after.key or item.key:
                break
            self.pending.popleft()
            parts.append(after.data)
            size += len(after.data)
            end += len(after.data)
            item = item._replace(lsn=after.lsn, at=after.at)
        return (item._replace(data=b"".join(parts)) if len(parts) > 1 else item), size

    def next_due(self) -> float:
        return self._times.next()

    def _load(self, matcher: Matcher, now: float) -> bool:
        try:
            # A new one has nothing stored, and thousands may begin at once.
            snapshot, kept = self._desk.state_of(self.id) if self.lsn else (None, [])
        except Exception as error:
            self._desk.database_failed(error)
            self._times.retry = now + 1.0
            return False
        self._times.retry = 0.0
        job = Job(self.job, [stream.source() for stream in self.streams], matcher)
        job.metadata = {key: self.labels[key] for key in KEYS if key in self.labels}
        if snapshot is not None:
            try:
                job.restore(snapshot, kept)
            except DiagnoseError as error:
                log.error("job %s attempt %d begins anew: %s", self.job, self.number, error)
                job = Job(self.job, job.sources, matcher)
                self._anew = True
        self.analysis = job
        self.counted_lines = job.compression.counts.lines_in
        self._next_ord = job.compression.kept.lines
        self._step = job.compression.last_step
        return True

    def _take(self, item: Item) -> None:
        """One record, in the order of the journal."""
        job = self.analysis
        assert job is not None
        self.lsn = item.lsn
        self._dirty = True
        if item.kind != DATA:
            self._finish(End.of(item.data))
            return
        stream = item.stream
        assert stream is not None
        while len(job.sources) <= stream.number:
            job.sources.append(self.streams[len(job.sources)].source())
        data = item.data
        if item.offset < stream.read:  # of a write that failed late: it was sent, and written, again
            data = data[stream.read - item.offset :]
        if item.offset > stream.read:
            log.error("%s: bytes %d to %d are missing", stream.definition.source, stream.read, item.offset)
        if item.key:
            stream.read_keys.append((item.key, item.at))
            while len(stream.read_keys) > self._settings.duplicates:
                stream.read_keys.popleft()
        if item.offset == 0 and not stream.read_head:
            stream.read_head = item.data[:HEAD]
        stream.read = max(stream.read, item.offset + len(item.data))
        stream.last_seen = max(stream.last_seen, item.at)
        stream.changed = True
        self.last_seen = max(self.last_seen, item.at)
        now = time.monotonic()
        if self.end is not None and self.end.by != "exit" and item.at > self.end.at + self._settings.settle_s:
            self.end = None  # it goes on after all
            self._desk.publish("job.started", job=self.job, attempt=self.number, again=True)
        self._last_data, self._wall_of_last_data = now, item.at
        if self.end is None:
            self._times.hang = now + self._patience()
            if self._hung:  # not any more: say so
                self._hung = False
                self._times.diagnose = now
        if self._times.end:
            self._times.end = now + self._settling
        scans = job.feed(stream.number, data)
        for scan in scans:
            self._keep(stream, scan)
        if self.workload is None and job.compression.counts.bytes_in >= FINGERPRINTED:
            self.workload = self._desk.workload(job.fingerprint)
        if self._desk.learns:
            self._learn(scans)

    def _learn(self, scans: list[Scan]) -> None:
        """What was kept is worth a lesson, once it is known for whom."""
        if self.workload is None:
            if len(self._unlearned) < _MOST_UNLEARNED:
                self._unlearned += scans
            return
        self._desk.learn(self, [*self._unlearned, *scans])
        self._unlearned = []

    _settling = 0.0

    def _keep(self, stream: Stream, scan: Scan) -> None:
        """Kept segments become rows; what is evidence of a failure makes a diagnosis due."""
        assert self.analysis is not None
        if not scan.kept:
            return
        rules = self.analysis.compression.matcher.rules
        definition = stream.definition
        named = self.analysis.sources[stream.number].origin
        told = definition.node or named.node
        redacts, rows = self._settings.redact, self._rows
        hit, weight, order = False, 0, self._next_ord
        ascii_ = scan.text.decode("ascii") if scan.text.isascii() else None  # nearly always, and at once
        for line, at, length, number, cut, _, _ in KEPT.iter_unpack(scan.kept):
            raw = scan.text[at : at + length]
            text = ascii_[at : at + length] if ascii_ is not None else raw.decode("utf-8", "replace")
            if redacts:
                text = stream.secrets.line(text)
                raw = text.encode()
            exact = None if ascii_ is not None or text.encode() == raw else raw
            rule: str | None = None
            if number == NOTABLE:
                rule, hit = NOTABLE_ID, True
            elif number >= 0:
                found = rules[number]
                rule = found.id
                if found.reason == "healthy":
                    self._ends(self._settings.settle_s * _WELL, "log")
                elif found.severity != "warning":
                    hit = True
                    if found.layer == "scheduler":
                        self._ends(self._settings.settle_s, "scheduler")
            rank, node = speaker(raw)
            rows.append(
                KeptRow(
                    order,
                    stream.number,
                    line,
                    text,
                    exact,
                    rule,
                    cut,
                    rank if rank is not None else named.rank,
                    node or told,
                )
            )
            order += 1
            weight += len(raw) + _ROW_WEIGHT
        self._next_ord = order
        self._weight += weight
        self._desk.weigh(weight)
        if hit:
            self._hit()

    def _hit(self) -> None:
        now = time.monotonic()
        times = self._times
        if not times.first_hit:
            times.first_hit = now
        if now - self._last_hit > _CALM_S:
            self._gap = _SHORTEST_GAP_S
        self._last_hit = now
        # Soon after the last of a burst, in any case soon after its first; who goes on failing is looked at ever more seldom.
        soon = min(now + _DEBOUNCE_S, times.first_hit + _AT_LATEST_S)
        times.diagnose = max(soon, self._judged_at + self._gap if self._judged_at else 0.0)

    def _ends(self, after_s: float, by: str) -> None:
        """Words that the job was ended: it has, if nothing more comes."""
        if self.end is None:
            self._settling = after_s
            self._ended_by = by
            self._times.end = time.monotonic() + after_s

    _ended_by = "scheduler"

    def _finish(self, end: End) -> None:
        """The end, as the journal has it."""
        job = self.analysis
        assert job is not None
        if self.end is None or self.end.by != "exit" or end.by == "exit":
            self.end = end
        last: list[Scan] = []
        for stream in self.streams[: len(job.sources)]:
            for scan in job.close(stream.number):
                self._keep(stream, scan)
                last.append(scan)
        if self.workload is None and job.compression.counts.bytes_in:
            self.workload = self._desk.workload(job.fingerprint)
        if self._desk.learns:
            self._learn(last)
        self._times.end = self._times.hang = 0.0
        self._times.diagnose = time.monotonic()
        self._judged_lsn = -1

    def _patience(self) -> float:
        """How long silence is no hang: longer where steps take long."""
        assert self.analysis is not None
        found = self.analysis.compression.series("step_time_s")
        rhythm = found[1].last if found is not None and found[1].last == found[1].last else 0.0
        return max(self._settings.hang_s, 20.0 * min(rhythm, 86_400.0))

    # --- what is due ---------------------------------------------------------------------------------------------------------

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        times = self._times
        if times.end and times.end <= now and not self.pending:
            times.end = 0.0
            self._desk.ended(self, End(self._ended_by, self._wall_of_last_data))
        if times.hang and times.hang <= now and not self.pending:
            self._silent(now)
        if self.report_wanted and not self.pending:
            self.report_wanted = False
            if self._judged_lsn != self.lsn:
                times.diagnose = now
        # With more to read at once, the answer is not worth much yet; but who never stops sending gets one too.
        if times.diagnose and times.diagnose <= now and (not self.pending or now - self._last_judged > _BEHIND_S):
            times.diagnose = times.first_hit = 0.0
            self._diagnose()
            self._last_judged = now
            self._gap = min(max(2 * self._gap, _COSTS * self._cost), _LONGEST_GAP_S)
        if self.labels_changed:
            self._dirty = True
        if (self._dirty or self._verdict) and not times.flush:
            times.flush = now + self._desk.flush_interval()
        if self.flushing is not None:
            times.flush = 0.0  # the flusher calls when it is done
            return
        if self.wanted and not (self.pending or self._dirty or self._verdict):
            self.wanted = False
            self._desk.settled(self)
        urgent = self._verdict is not None or (self.wanted and not self.pending)
        if (self._dirty and (times.flush <= now or self._weight > self._settings.unstored_job // 4)) or urgent:
            times.flush = 0.0
            self.wanted = False
            self._flush()

    def _silent(self, now: float) -> None:
        """No byte for long: first it hangs, in the end it has ended."""
        quiet = now - self._last_data
        if self.end is not None:
            self._times.hang = 0.0
        elif quiet >= self._settings.silence_s:
            self._times.hang = 0.0
            self._desk.ended(self, End("silence", self._wall_of_last_data))
        elif not self._hung and quiet < (patience := self._patience()):
            self._times.hang = self._last_data + patience
        else:
            if not self._hung and self._step is not None:
                self._hung = True
                self._diagnose()
            self._times.hang = self._last_data + self._settings.silence_s

    def _diagnose(self) -> None:
        job = self.analysis
        assert job is not None
        began = time.monotonic()
        self._judged_lsn = self.lsn
        report = judged(
            job.report(running=self.end is None),
            attempt=self.number,
            end=self.end,
            silent_s=began - self._last_data if self._hung and self.end is None else None,
        )
        if self._settings.redact:
            report = redacted(report)
        self._judged_at = time.monotonic()
        self._cost = self._judged_at - began
        self.phase = report.diagnosis.phase
        gpus = self.labels.get("gpus", "")
        until = self.end.at if self.end else self.last_seen
        lost = (until - self.started_at) * int(gpus) if gpus.isascii() and gpus.isdigit() and len(gpus) < 8 else 0.0
        self._verdict = Verdict(report, self.end is not None, time.time(), max(0.0, lost))
        self._desk.reported(self, report, self._cost)

    def _flush(self) -> None:
        """Hand over to the flusher: from here on this attempt goes on, and the next flush waits for this one."""
        job = self.analysis
        assert job is not None
        log_, counts = job.compression, job.compression.counts
        step = log_.last_step
        if step is not None and step != self._step:
            if self._step is None:
                self._training_at = self.last_seen
            self._step, self._progress_at = step, self.last_seen
        if self._verdict is None:  # else they were just asked
            self._look_for_anomalies(job)
        loss = log_.series("loss")
        self.course = _course(loss[1]) if loss is not None else ()
        figures: dict[str, Any] = {
            "last_seen": self.last_seen,
            "state": "running" if self.end is None else "ended",
            "ended_at": self.end.at if self.end else None,
            "ended_by": self.end.by if self.end else None,
            "exit_code": self.end.exit_code if self.end else None,
            "signal": self.end.signal if self.end else None,
            "lines_in": counts.lines_in,
            "bytes_in": counts.bytes_in,
            "lines_kept": counts.lines_kept,
            "bytes_kept": counts.bytes_kept,
            "dropped": log_.dropped_by_kind(),
            "hits": log_.dropped_by_rule(),
            "phase": self.phase,
            "step": _finite(step),
            "loss": _finite(loss[1].last) if loss is not None else None,
            "training_at": self._training_at,
            "progress_at": self._progress_at,
            "workload": self.workload,
        }
        if self._verdict is not None:
            figures["outcome"] = self._verdict.report.outcome
        changed = [stream for stream in self.streams[: len(job.sources)] if stream.changed]
        for stream in changed:
            stream.changed = False
        labels = dict(self.labels) if self.labels_changed else None
        self.labels_changed = False
        flush = Flush(
            self.job_id,
            self.id,
            self.number,
            self.lsn,
            job.snapshot(),
            self._rows,
            figures,
            [stream.state() for stream in changed],
            labels,
            self._verdict,
            self._anew,
        )
        flush.judged_lsn = self._judged_lsn if self._verdict is not None else -1
        flush.weight, self._weight = self._weight, 0
        self._rows, self._verdict, self._dirty, self._anew = [], None, False, False
        self.flushing = flush
        self._desk.flush(self, flush)

    def _look_for_anomalies(self, job: Job) -> None:
        """Hang and loss are also looked for where no line is evidence: cheaply, each time that we store."""
        if self.end is not None:
            return
        compression = job.compression
        known = {name: found for name in compression.series_names if (found := compression.series(name)) is not None}
        alarm = next((one for one in findings(Course(known, running=True)) if one.reason is not None), None)
        anomaly = f"{alarm.detector} {alarm.line}" if alarm is not None else None
        if anomaly != self._anomaly:
            self._anomaly = anomaly
            self._times.diagnose = self._times.diagnose or time.monotonic()

    def flushed(self, flush: Flush) -> None:
        """It is in the database. On the flusher's thread; what follows is asked of the scanner."""
        self.stored_lsn = flush.lsn
        self.stored_judged_lsn = max(self.stored_judged_lsn, flush.judged_lsn)
        self.flushing = None


def _course(series: Series) -> tuple[float | None, ...]:
    """The means of a series, in at most ``_COURSE`` points."""
    totals, finite = series.column("total"), series.column("finite")
    width = -(-len(totals) // _COURSE) or 1
    parts = ((sum(totals[at : at + width]), sum(finite[at : at + width])) for at in range(0, len(totals), width))
    return tuple(_finite(total / count) if count else None for total, count in parts)


def _finite(value: float | None) -> float | None:
    return value if value is not None and value == value and abs(value) != float("inf") else None


def key_of(batch_key: str | None, data: bytes) -> int:
    """64 bits that stand for a batch without offset; never 0."""
    named = batch_key is not None
    digest = hashlib.blake2b(
        batch_key.encode() if batch_key is not None else data, digest_size=8, key=b"key" if named else b"data"
    )
    return int.from_bytes(digest.digest(), "little") or 1
