"""What a caller says of the end, where the log does not say why."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.status import Told, told_of
from diagnose.job import Job
from diagnose.report import Report
from tests.support.logs import job_of, shipped_matcher, steps

AT_WORK = steps(1, 30)
AT_START = "loading the model\nreading shards\n"
CHATTER = "".join(f"the {name} of the model is ready\n" for name in ("encoder", "decoder", "head"))


def report_of(log: str, told: Told | None) -> Report:
    job = job_of(log)
    job.told = told
    return job.report()


@pytest.mark.parametrize("code", [139, -11])
def test_a_crash_that_no_line_tells_of(code: int) -> None:
    """The kernel's SIGSEGV leaves nothing in the log of the process."""
    found = report_of(AT_WORK, Told(code))
    it = found.diagnosis
    assert (found.outcome, it.category, it.reason, it.by) == ("failed", "framework", "native_crash", "detector")
    assert "SIGSEGV ended the job" in it.summary
    assert "after step 30" in it.summary
    assert "PYTHONFAULTHANDLER" in str(it.mitigation)
    assert it.root_cause is not None
    assert it.root_cause.line == 30
    assert it.notes == [f"The caller says that the job ended with exit code {code}."]
    assert 0.5 < it.confidence < 0.9
    assert any("rests on how the job ended" in doubt for doubt in it.doubt)
    assert found.action.kind == "restart"


def test_a_crash_before_the_first_step_comes_again() -> None:
    found = report_of(AT_START, Told(134))
    assert (found.diagnosis.reason, found.action.kind) == ("native_crash", "fix_config")


def test_a_kill_amid_the_work_may_have_two_senders() -> None:
    found = report_of(AT_WORK, Told(137))
    it = found.diagnosis
    assert (it.reason, it.confidence, found.action.kind) == ("unknown", 0.0, "restart")
    assert [one.reason for one in it.alternatives] == ["host_out_of_memory", "preempted"]
    assert "dmesg" in str(it.mitigation)


def test_a_kill_while_the_model_is_loaded_is_the_memory() -> None:
    assert report_of(AT_START, Told(-9)).diagnosis.reason == "host_out_of_memory"


@pytest.mark.parametrize(("told", "kind"), [(Told(143), "restart"), (Told(1, 15), "restart"), (Told(130), "none")], ids=str)
def test_a_stop(told: Told, kind: str) -> None:
    found = report_of(AT_WORK, told)
    assert (found.diagnosis.category, found.diagnosis.reason, found.action.kind) == ("infrastructure", "preempted", kind)


@pytest.mark.parametrize("told", [Told(1), Told(), Told(-1), Told(255), Told(127)], ids=str)
def test_another_exit_code_says_no_more_than_that_it_failed(told: Told) -> None:
    """The last line that no rule knows is where a person should begin."""
    found = report_of(CHATTER + AT_WORK, told)
    it = found.diagnosis
    assert (found.outcome, it.reason, it.confidence, found.action.kind) == ("failed", "unknown", 0.0, "none")
    assert it.root_cause is not None
    assert it.root_cause.text == "the head of the model is ready"
    assert it.summary.lower().startswith(f"{told.end}, and nothing in its log says why")


def test_a_log_of_nothing_but_work_ends_with_its_last_step() -> None:
    root = report_of(AT_WORK, Told(1)).diagnosis.root_cause
    assert root is not None
    assert root.line == 30


def test_standard_error_has_the_last_word() -> None:
    job = job_of("cannot find my way home\n", CHATTER, names=("job.err", "job.out"))
    job.told = Told(1)
    root = job.report().diagnosis.root_cause
    assert root is not None
    assert (root.source, root.line) == ("job.err", 1)


def test_an_empty_log_says_nothing() -> None:
    found = report_of("", Told(1))
    assert (found.outcome, found.diagnosis.reason, found.diagnosis.root_cause) == ("failed", "unknown", None)
    assert "standard error" in str(found.diagnosis.mitigation)


@pytest.mark.parametrize("code", [1, 134, 137, 143])
def test_what_the_log_says_goes_before_its_exit_code(code: int) -> None:
    raised = "Traceback (most recent call last):\n  File \"/a/train.py\", line 3, in <module>\n    main()\nKeyError: 'x'\n"
    assert report_of(AT_WORK + raised, Told(code)).diagnosis == report_of(AT_WORK + raised, None).diagnosis


def test_a_signal_is_surer_than_a_line_that_only_sounds_like_a_failure() -> None:
    odd = "the sampler could not do this quietly\n"
    assert report_of(AT_START + odd, Told(139)).diagnosis.reason == "native_crash"
    assert report_of(AT_START + odd, Told(1)).diagnosis.reason == "unknown"


def test_who_says_that_it_failed() -> None:
    assert told_of() is None
    assert told_of(exit_code=0) is None
    assert told_of(failed=True, exit_code=0) == Told()
    assert told_of(exit_code=3) == Told(3)
    assert told_of(signal=9) == Told(None, 9)


@pytest.mark.parametrize("told", [Told(138, 10), Told(152, 24), Told(141, 13), Told(1, 53), Told(None, 125)], ids=str)
def test_a_signal_that_says_nothing_is_no_kill(told: Told) -> None:
    """SIGUSR1, SIGXCPU and SIGPIPE have many senders, and Slurm has numbers of its own."""
    found = report_of(AT_START, told).diagnosis
    assert found.reason == "unknown"
    assert told.end in found.summary.lower()


@pytest.mark.parametrize(
    ("code", "reason"), [(137, "host_out_of_memory"), (139, "native_crash"), (143, "preempted"), (1, "unknown")]
)
def test_an_empty_log_has_the_answer_of_its_exit_code(code: int, reason: str) -> None:
    """There is no line to show, so none is shown."""
    found = report_of("", Told(code))
    it = found.diagnosis
    assert (found.outcome, it.reason, it.root_cause, it.evidence) == ("failed", reason, None, [])
    assert it.notes == [f"The caller says that the job ended with exit code {code}."] or reason == "unknown"


@pytest.mark.parametrize("code", [1, 137, 139, 143])
def test_a_job_of_which_nobody_sent_a_log_failed(code: int) -> None:
    job = Job("x", [], shipped_matcher())
    job.told = Told(code)
    report = job.report()
    assert (report.outcome, report.diagnosis.reason, report.diagnosis.root_cause) == ("failed", "unknown", None)
