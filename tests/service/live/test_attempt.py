"""One attempt by itself: what is kept, when it is judged, stored and ended; the test is its event loop, scanner and flusher."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from diagnose.compression.snapshot import StoredLine
from diagnose.compression.workload import Fingerprint
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.report import Report
from service.live.attempt import LiveAttempt
from service.live.inbox import Moved, Stored
from service.live.scanner import Scanner
from service.live.stream import End, Item
from service.segments import DATA, Definition
from service.settings import Settings
from service.store.attempts import Opened
from service.store.flush import Flush
from tests.support.live import RULES, Hands


@functools.cache
def matcher() -> Matcher:
    return Matcher(RULES)


class Case:
    """An attempt, and what it asked of its host."""

    def __init__(self, opened: Opened | None = None, **settings: Any) -> None:
        self.hands = Hands()
        self.began = self.hands.clock.steady()
        now = self.hands.clock.now()
        self.settings = Settings(hang_s=100.0, silence_s=1000.0, settle_s=5.0).model_copy(update=settings)
        self.unstored = 0
        self.learns = False
        self.known: tuple[bytes | None, list[StoredLine]] = (None, [])
        self.away = False
        self.flushes: list[Flush] = []
        self.ends: list[End] = []
        self.said: list[str] = []
        self.settled_at: list[float] = []
        self.lessons: list[tuple[str, str, int]] = []
        self.reports: list[Report] = []
        self.lsn, self.offsets = opened.lsn if opened else 0, dict.fromkeys("", 0)
        opened = opened or Opened(1, 2, 1, 1, 0, "running", None, None, None, None, now, now, [], {})
        self.attempt = LiveAttempt("job", opened, self, self.settings, Scanner(0, self, self.hands.clock), self.hands.clock)
        self.attempt.scanner.adopt(self.attempt)

    # the host

    def weigh(self, weight: int) -> None:
        self.unstored += weight

    def read(self, size: int) -> None: ...

    def state_of(self, attempt_id: int) -> tuple[bytes | None, list[StoredLine]]:
        if self.away:
            raise OSError("away")
        return self.known

    def database_failed(self, error: Exception) -> None:
        self.said.append(str(error))

    def flush_interval(self) -> float:
        return 2.0

    def flush(self, attempt: LiveAttempt, flush: Flush, rules: Sequence[Rule]) -> None:
        self.flushes.append(flush)

    def ended(self, attempt: LiveAttempt, end: End) -> None:
        self.ends.append(end)

    def reported(self, report: Report, cost_s: float) -> None:
        self.reports.append(report)

    def settled(self, attempt: LiveAttempt) -> None:
        self.settled_at.append(self.hands.passed)

    def publish(self, kind: str, **data: Any) -> None:
        self.said.append(kind)

    def workload(self, job: Fingerprint, project: str) -> str | None:
        return "kind"

    def learn(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        self.lessons.append((job, workload, sum(len(scan.text) for scan in scans)))

    # matchers of the scanner, which is not started

    def open(self, scanner: int) -> Matcher:
        return matcher()

    def of(self, scanner: int, workload: str | None) -> Matcher:
        return matcher()

    # the test

    def push(self, data: bytes, source: str = "s", key: int = 0, offset: int | None = None) -> None:
        stream = self.attempt.enter(Definition("job", 1, source))
        self.lsn += 1
        offset = stream.received if offset is None else offset
        stream.received = offset + len(data)
        self.attempt.push(Item(self.lsn, DATA, stream.number, offset, key, self.hands.clock.now(), data))

    def end(self, end: End) -> None:
        self.lsn += 1
        self.attempt.push(Item.of_end(self.lsn, self.hands.clock.now(), end.as_bytes()))

    def work(self, after_s: float = 0.0) -> bool:
        """As its scanner does, after so long."""
        self.hands.passed += after_s
        self.attempt.turn.scheduled = False
        return self.attempt.work(matcher())

    def stored(self) -> Flush:
        """The flush that is under way, once it is in the database."""
        flush = self.flushes[-1]
        self.attempt.received.stored(flush, self.hands.clock.steady())
        self.unstored -= flush.weight
        self.attempt.tell(Stored())
        return flush

    def kept(self) -> list[str]:
        return [row.text for flush in self.flushes for row in flush.rows]


def steps(count: int, first: int = 1) -> bytes:
    return b"".join(b"iteration %d loss 2.0\n" % n for n in range(first, first + count))


def test_what_was_read_is_stored_after_a_while_and_once() -> None:
    case = Case()
    case.push(b"mind the gap\n" + steps(3))
    assert case.work() is False
    assert case.flushes == []
    case.work(1.9)
    assert case.flushes == []
    case.work(0.1)
    (flush,) = case.flushes
    assert (flush.lsn, flush.new_lines, flush.judged, flush.labels, flush.anew) == (1, 4, None, None, False)
    assert [(row.ord, row.source, row.line, row.text, row.rule) for row in flush.rows] == [(0, 0, 1, "mind the gap", "mind")]
    figures = {name: flush.figures[name] for name in ("state", "lines_in", "lines_kept", "step", "loss", "ended_by")}
    assert figures == {"state": "running", "lines_in": 4, "lines_kept": 1, "step": 3.0, "loss": 2.0, "ended_by": None}
    assert [(one.name, one.received) for one in flush.sources] == [("s", 13 + len(steps(3)))]
    assert not case.attempt.idle
    case.stored()
    case.work()
    assert case.attempt.idle
    case.work(50.0)
    assert len(case.flushes) == 1


def test_the_next_flush_waits_for_the_one_that_is_under_way() -> None:
    case = Case()
    case.push(b"one\n")
    case.work()
    case.work(2.0)
    case.push(b"two\n")
    case.work()
    case.work(10.0)
    assert len(case.flushes) == 1
    case.stored()
    case.work()
    case.work(2.0)
    assert [flush.new_lines for flush in case.flushes] == [1, 1]
    assert [row.ord for flush in case.flushes for row in flush.rows] == [0, 1]


def test_who_waits_is_told_when_all_that_came_is_stored() -> None:
    case = Case()
    told: list[str] = []
    case.push(b"one\n")
    case.attempt.wait(lambda: told.append("first"), report=False)
    case.work()
    assert len(case.flushes) == 1, "at once, for somebody waits"
    case.push(b"two\n")
    case.attempt.wait(lambda: told.append("second"), report=True)
    case.work()
    case.stored()
    case.attempt.answer()
    assert told == ["first"]
    case.work()
    assert case.flushes[-1].judged is not None, "with a diagnosis, for that is waited for"
    assert case.flushes[-1].judged_lsn == 2
    case.stored()
    case.attempt.answer()
    assert told == ["first", "second"]
    case.attempt.wait(lambda: told.append("third"), report=False)
    case.work()
    assert len(case.settled_at) == 1, "there is nothing to store"
    case.attempt.answer()
    assert told[-1] == "third"


def test_a_failure_is_judged_soon_and_stored_with_its_diagnosis_at_once() -> None:
    case = Case()
    case.push(steps(2) + b"RuntimeError: boom\n")
    case.work()
    case.work(0.1)
    assert case.flushes == []
    case.work(0.11)
    judged = case.flushes[0].judged
    assert judged is not None
    assert (judged.final, judged.report.diagnosis.reason, case.flushes[0].judged_lsn) == (False, "runtime_error", 1)
    assert case.attempt.next_due() > 0


def test_who_failed_on_gets_its_last_diagnosis_when_its_thread_has_nothing_to_read() -> None:
    case = Case()
    case.push(b"RuntimeError: boom\n")
    case.work(0.3)
    case.work(0.3)
    assert len(case.reports) == 1
    case.stored()
    case.attempt._times.slower(0.0, all_cost_s=2.0)  # many jobs fail
    case.push(b"RuntimeError: boom\n")
    case.work(0.1)
    case.work(5.0)
    assert len(case.reports) == 1, "there is other work"
    assert 0.0 < case.attempt.next_leisure() < case.hands.clock.steady()
    case.push(b"the cat sat\n")
    assert case.attempt.work(matcher(), at_leisure=True) is False
    assert len(case.reports) == 2, "all that came was read first"
    assert case.reports[-1].compression.lines_in == 3
    assert case.attempt.next_leisure() == 0.0
    case.attempt.work(matcher(), at_leisure=True)
    assert len(case.reports) == 2, "nothing is new"


WIDE = b"RuntimeError: boom, and so on up to the last column of a usual terminal, as it".ljust(80, b"!")


def test_a_line_that_may_have_been_broken_is_waited_for_no_longer_than_a_second() -> None:
    case = Case()
    case.push(WIDE + b"\n")
    case.work()
    case.work(0.9)
    assert case.reports == [], "the next line may be its other half"
    case.work(0.1)
    case.work(0.3)
    assert [report.diagnosis.reason for report in case.reports] == ["runtime_error"]
    case.stored()
    case.push(b"the cat sat\n")
    case.work()
    case.end(End("exit", case.attempt.started_at + 100.0, 1))
    case.work(3.0)
    assert case.kept() == [WIDE.decode(), "the cat sat"]


def test_lines_that_waited_when_it_left_the_memory_are_not_waited_for_again() -> None:
    case = Case()
    case.push(b"one\n" + WIDE + b"\n")
    case.work()
    case.attempt.wait(lambda: None, report=False)
    case.work()
    (flush,) = case.flushes
    assert flush.snapshot is not None
    now = case.hands.clock.now()
    opened = Opened(1, 2, 1, 1, 1, "running", None, None, None, None, now, now, flush.sources, {})
    again = Case(opened)
    again.known = flush.snapshot, [StoredLine(row.source, row.line, row.text.encode(), row.rule, row.cut) for row in flush.rows]
    again.attempt.wait(lambda: None, report=True)
    again.work()
    again.work(1.0)
    again.stored()
    again.work(0.3)
    assert again.reports[-1].diagnosis.reason == "runtime_error"


def test_at_leisure_nobody_is_diagnosed_before_it_said_no_more_for_a_moment() -> None:
    case = Case()
    case.push(b"RuntimeError: boom\n")
    case.work(0.3)
    case.work(0.3)
    case.push(b"RuntimeError: boom\n")
    case.work(0.1)
    case.hands.passed += 0.1
    case.attempt.work(matcher(), at_leisure=True)
    assert len(case.reports) == 1


def test_labels_are_stored_once_and_count_the_cost() -> None:
    case = Case()
    case.attempt.label({"gpus": "8", "user": "kim"})
    case.attempt.label({"gpus": "8"})
    case.work()
    case.work(2.0)
    assert case.flushes[0].labels == {"gpus": "8", "user": "kim"}
    case.stored()
    case.attempt.label({"user": "lee"})
    case.push(b"RuntimeError: boom\n")
    case.work(10.0)
    case.end(End("exit", case.attempt.started_at + 100.0, 1))
    case.work()
    flush = case.flushes[-1]
    assert flush.labels == {"gpus": "8", "user": "lee"}
    assert flush.judged is not None
    assert flush.judged.gpu_seconds == 800.0
    case.stored()
    case.push(b"late\n")
    case.work()
    case.work(2.0)
    assert case.flushes[-1].labels is None


@pytest.mark.parametrize(("gpus", "cost"), [("", 0.0), ("many", 0.0), ("12345678", 0.0), ("2", 20.0)])
def test_only_a_number_of_gpus_that_can_be_one_costs(gpus: str, cost: float) -> None:
    case = Case()
    case.attempt.label({"gpus": gpus})
    case.end(End("exit", case.attempt.started_at + 10.0, 0))
    case.work()
    judged = case.flushes[0].judged
    assert judged is not None
    assert (judged.gpu_seconds, judged.final) == (cost, True)


# --- ends


def test_the_end_is_final_and_explains_itself() -> None:
    case = Case()
    case.push(b"half a line")
    case.end(End("exit", 7.0, 3))
    case.work()
    (flush,) = case.flushes
    assert flush.judged is not None
    assert (flush.judged.final, flush.judged.report.outcome) == (True, "failed")
    assert "exit code 3" in flush.judged.report.diagnosis.summary
    root = flush.judged.report.diagnosis.root_cause
    assert root is not None
    assert root.text == "half a line"
    assert case.kept() == ["half a line"]
    assert case.attempt.end == End("exit", 7.0, 3)
    assert {name: flush.figures[name] for name in ("state", "ended_by", "ended_at", "exit_code")} == {
        "state": "ended", "ended_by": "exit", "ended_at": 7.0, "exit_code": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "by", "after_s"),
    [(b"CANCELLED AT noon\n", "scheduler", 5.0), (b"Training completed\n", "log", 60.0)],
    ids=["scheduler", "log"],
)
def test_words_of_an_end_are_one_if_nothing_more_comes(line: bytes, by: str, after_s: float) -> None:
    case = Case()
    case.push(line)
    case.work()
    assert case.attempt.seen.awaited
    case.work(after_s - 0.1)
    case.push(b"something\n")
    case.work()
    came = case.hands.clock.now()
    case.work(after_s - 0.1)
    assert case.ends == []
    case.work(0.1)
    assert case.ends == [End(by, came)]
    assert case.attempt.end is None, "it has ended when the journal says so"
    case.work(after_s)
    assert len(case.ends) == 1


def test_what_ended_by_words_may_go_on_and_what_exited_may_not() -> None:
    case = Case()
    for by, ended in (("scheduler", False), ("exit", True)):
        case.end(End(by, case.hands.clock.now(), 1 if by == "exit" else None))
        case.work()
        case.push(b"soon\n")
        case.work(5.0)
        assert case.attempt.end is not None
        case.hands.passed += 0.1
        case.push(b"later\n")
        case.work()
        assert (case.attempt.end is not None) is ended
    assert case.said == ["job.started"]
    case.end(End("silence", 1.0))
    case.work()
    assert case.attempt.end.by == "exit", "the exit is known better"


# --- hangs and silence


def test_who_made_steps_and_is_silent_hangs_and_then_has_ended() -> None:
    case = Case()
    case.push(steps(5))
    case.work()
    case.work(2.0)
    case.stored()
    came = case.hands.clock.now() - 2.0
    assert case.attempt.seen.awaited
    case.work(97.9)
    assert case.reports == []
    case.work(0.1)
    assert [report.diagnosis.reason for report in case.reports] == ["hang"]
    assert not case.attempt.seen.awaited
    case.stored()
    case.work(899.9)
    assert case.ends == []
    case.work(0.1)
    assert case.ends == [End("silence", came)]
    case.end(case.ends[0])
    case.work()
    last = case.reports[-1]
    assert (last.outcome, last.diagnosis.reason) == ("failed", "hang"), "silence behind an alarm is no health"


def test_a_hang_that_is_over_is_taken_back() -> None:
    case = Case()
    case.push(steps(5))
    case.work()
    case.work(2.0)
    case.stored()
    case.work(98.0)
    case.stored()
    case.push(steps(1, 6))
    case.work()
    assert [report.diagnosis.reason for report in case.reports] == ["hang", "unknown"]


def test_who_never_made_a_step_does_not_hang() -> None:
    case = Case()
    case.push(b"hello\n")
    case.work()
    case.work(2.0)
    case.stored()
    case.work(98.0)
    case.work(500.0)
    assert (case.reports, case.ends) == ([], [])
    case.work(400.0)
    assert [end.by for end in case.ends] == ["silence"]


def settled(case: Case) -> None:
    """What was pushed is read and stored."""
    case.work()
    case.work(2.0)
    case.stored()


def test_stacks_that_were_taken_of_it_are_no_sign_of_life() -> None:
    case = Case()
    case.push(steps(5))
    settled(case)
    assert not case.attempt.seen.stands
    case.work(98.0)
    assert case.attempt.seen.stands
    case.stored()
    stack = b'Process 7: python train.py\nPython v3.11.2\n\nThread 7 (idle): "MainThread"\n'
    stack += b"    all_reduce (distributed_c10d.py:2501)\n"
    case.push(stack, source="s/stacks")
    case.work()
    case.work(1.0)
    assert case.attempt.seen.stands
    assert [report.diagnosis.dumps is not None for report in case.reports] == [False, True]
    assert case.reports[-1].action.kind == "restart"


def test_whose_rank_is_gone_has_failed_when_the_others_have_waited_for_long() -> None:
    case = Case()
    case.push(steps(5) + b"RuntimeError: boom\n")
    settled(case)
    assert case.reports[-1].outcome == "running"
    for minute in range(9):  # the others say that they wait
        case.push(b"still waiting for the store %d\n" % minute)
        case.work(9.0)
    assert case.ends == []
    case.push(b"still waiting for the store\n")
    case.work(20.0)
    (end,) = case.ends
    case.end(end)
    case.work()
    assert (end.by, case.reports[-1].outcome, case.reports[-1].diagnosis.reason) == ("silence", "failed", "runtime_error")


def test_who_prints_and_makes_no_step_may_hang_and_a_person_is_asked() -> None:
    case = Case()
    case.push(steps(5))
    settled(case)
    for _ in range(39):
        case.push(b"still here\n")
        case.work(10.0)
    assert case.reports == []
    case.push(b"still here\n")
    case.work(10.0)
    (report,) = case.reports
    assert (report.diagnosis.reason, report.diagnosis.confidence) == ("hang", 0.45)
    assert report.diagnosis.summary.startswith("The job has made no step for ")
    case.stored()
    case.push(steps(1, 6))
    case.work(2.0)
    case.work()
    assert case.reports[-1].diagnosis.reason == "unknown"


def test_steps_that_the_training_reports_are_steps() -> None:
    case = Case()
    case.push(b"hello\n")
    settled(case)
    for _ in range(5):
        case.attempt.tell(Moved(case.hands.clock.now()))
        case.work(90.0)
    assert case.reports == []
    case.work(100.0)
    assert [report.diagnosis.reason for report in case.reports] == ["hang"]


def test_who_has_gpus_and_never_made_a_step_may_hang() -> None:
    case = Case()
    case.attempt.label({"gpus": "8"})
    case.push(b"hello\n")
    settled(case)
    case.work(150.0)
    assert case.reports == []
    case.work(50.0)
    assert [(report.diagnosis.reason, report.diagnosis.confidence) for report in case.reports] == [("hang", 0.45)]


def test_the_time_before_the_service_ran_is_no_silence() -> None:
    hands = Hands()
    long_ago = hands.clock.now() - 50_000.0
    opened = Opened(1, 2, 1, 1, 0, "running", None, None, None, None, long_ago, long_ago, [], {})
    case = Case(opened)
    case.work(999.0)
    assert case.ends == []
    case.work(1.0)
    assert case.ends == [End("silence", long_ago)]


# --- in order, within bounds, and again


def test_what_was_read_is_not_read_again_and_pieces_are_joined() -> None:
    case = Case()
    case.push(b"mind the gap 1\nmind the ")
    case.push(b"gap 2\n")
    case.push(b"the gap 2\nmind the gap 3\n", offset=20)
    case.work()
    case.work(2.0)
    assert case.kept() == ["mind the gap 1", "mind the gap 2", "mind the gap 3"]
    assert case.attempt.queued == 0


def test_sources_are_kept_apart_though_one_of_them_never_came() -> None:
    case = Case()
    case.attempt.enter(Definition("job", 1, "lost"))  # its first write failed
    case.push(b"mind a\n", source="a")
    case.push(b"mind b\n", source="b")
    case.push(b"mind the gap a\n", source="a")
    case.work()
    case.work(2.0)
    assert [(row.source, row.line) for row in case.flushes[0].rows] == [(1, 1), (2, 1), (1, 2)]


def test_a_slice_at_a_time() -> None:
    case = Case()
    for _ in range(3):
        case.push(b"x" * 999_999 + b"\n", key=1)
    assert [case.work(), case.work(), case.work()] == [True, True, False]
    assert case.attempt.read_bytes == 3_000_000


@pytest.mark.parametrize("bound", [{"unstored_job": 1000}, {"unstored_all": 1000}], ids=["job", "all"])
def test_with_too_much_unstored_it_reads_no_further_and_stores(bound: dict[str, int]) -> None:
    case = Case(**bound)
    for _ in range(2):
        case.push(b"mind the gap\n" * 4, key=1)
    assert case.work() is False
    assert case.attempt.queued == 52
    case.work(0.19)
    assert case.attempt.queued == 52, "it is tried again after a moment"
    case.work(2.0)
    assert case.attempt.queued == (52 if "unstored_all" in bound else 0), (
        "its own are on their way, those of all are not stored"
    )
    assert len(case.flushes[0].rows) == 4
    case.stored()
    case.work(0.2)
    assert case.attempt.queued == 0


def test_a_database_that_is_away_is_asked_again_after_a_second_and_nothing_is_read_meanwhile() -> None:
    now = Hands().clock.now()
    case = Case(Opened(1, 2, 1, 1, 9, "running", None, None, None, None, now, now, [], {}))
    case.away = True
    case.push(b"mind the gap\n")
    assert case.work() is False
    assert (case.said, case.attempt.queued) == (["away"], 13)
    case.away = False
    case.work(0.9)
    assert case.attempt.queued == 13
    case.work(0.1)
    assert case.attempt.queued == 0


def test_a_snapshot_goes_on_and_a_broken_one_begins_anew() -> None:
    first = Case()
    first.push(b"mind the gap\n" + steps(3))
    first.work()
    first.work(2.0)
    flush = first.flushes[0]
    now = first.hands.clock.now()
    opened = Opened(1, 2, 1, 1, 1, "running", None, None, None, None, now, now, flush.sources, {})
    kept = [StoredLine(row.source, row.line, row.text.encode(), row.rule, row.cut) for row in flush.rows]
    for snapshot, lines, anew in ((flush.snapshot, 5, False), (b"garbage", 1, True)):
        case = Case(opened)
        case.known = (snapshot, kept)
        case.push(b"mind the gap\n", offset=flush.sources[0].received)
        case.work()
        case.work(2.0)
        again = case.flushes[0]
        assert (again.figures["lines_in"], again.new_lines, again.anew) == (lines, 1, anew)
        assert again.rows[0].ord == (0 if anew else 1)


def test_secrets_are_taken_out_of_what_is_stored() -> None:
    secret = b"hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
    for redact in (False, True):
        case = Case(redact=redact)
        case.push(b"mind the gap: token " + secret + b"\nRuntimeError: boom " + secret + b"\n")
        case.work()
        case.work(1.0)
        judged = case.flushes[0].judged
        assert judged is not None
        for text in (*case.kept(), judged.report.as_json()):
            assert (secret.decode() in text) is not redact


def test_lessons_wait_until_it_is_known_what_kind_of_job_it_is() -> None:
    case = Case()
    case.learns = True
    case.push(b"mind the gap\n")
    case.work()
    assert case.lessons == []
    case.end(End("exit", 1.0, 0))
    case.work()
    assert [(job, kind) for job, kind, _ in case.lessons] == [("job", "kind")]
    assert case.attempt.workload == "kind"


def test_it_leaves_the_memory_only_when_nothing_of_it_is_only_there() -> None:
    case = Case()
    case.work()
    attempt = case.attempt
    assert attempt.idle
    case.attempt.received.unanswered = 1
    assert not attempt.idle
    case.attempt.received.unanswered = 0
    case.attempt.tell(Stored())
    assert not attempt.idle, "it has not heard yet"
    case.work()
    assert attempt.idle
    case.attempt.wait(lambda: None, report=False)
    case.work()
    assert not attempt.idle, "somebody waits"
    case.attempt.answer()
    assert attempt.idle
    assert attempt.scanner.release(attempt)
    assert attempt.closed
    attempt.let_go()


@pytest.mark.slow
def test_what_takes_long_to_read_is_read_in_short_turns() -> None:
    """Each line costs the time limit of a search. A turn of a megabyte of them once took more than a minute."""
    slow = Rule("slow", "filters", r"^slow ", kind="metric", metrics=(("loss", r"(\d+)[\d.]*$"),))
    case, mine = Case(), Matcher(RuleSet.of([slow]), "plain")
    for number in range(6):
        case.push(b"".join(b"slow %d %d %sx\n" % (number, line, b"3" * 8000) for line in range(8)))
    assert case.attempt.work(mine), "there is more to read, and it is another one's turn"
    while case.attempt.work(mine):
        pass
    assert not case.attempt.waits


def test_what_is_read_quickly_is_read_in_large_pieces() -> None:
    case, turns = Case(), 1
    for number in range(64):
        case.push(b"iteration %d loss 0.5\n" % number * 3000)
    while case.work():
        turns += 1
    assert turns < 12
