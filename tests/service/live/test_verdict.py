"""How the process ended, and that it is silent, as far as the log does not say it; no secret in what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.report import EvidenceLine, Report
from service.live.stream import End
from service.live.verdict import judged, redacted
from tests.support.cases import report


def healthy() -> Report:
    """Of a job that went well as far as its log tells."""
    plain = report("healthy", outcome="healthy", phase="training", step=19)
    recovered = [EvidenceLine(source="s", line=1, text="tried again")]
    it = plain.diagnosis.model_copy(update={"notes": ["a note"], "recovered": recovered})
    return plain.model_copy(update={"diagnosis": it})


def failed() -> Report:
    return report("cuda_error", root=EvidenceLine(source="s", line=7, text="CUDA error: an illegal memory access"))


@pytest.mark.parametrize(("told", "said", "wanted"), [(3, 1, 3), (3, 5, 5), (1, 1, 1)])
def test_the_number_of_the_attempt_is_the_greater_of_what_is_known(told: int, said: int, wanted: int) -> None:
    plain = healthy()
    plain = plain.model_copy(update={"job": plain.job.model_copy(update={"attempt": said})})
    found = judged(plain, attempt=told, end=None)
    assert found.job.attempt == wanted
    assert found.job.id == plain.job.id
    assert (found.outcome, found.diagnosis) == (plain.outcome, plain.diagnosis)


def test_a_silent_job_whose_log_says_nothing_hangs() -> None:
    plain = healthy()
    found = judged(plain, attempt=1, end=None, silent_s=1800.0)
    it = found.diagnosis
    assert (it.category, it.reason, it.confidence, it.by, it.group) == ("framework", "hang", 0.6, "detector", "hang-silent")
    assert "silent for 30" in it.summary
    assert "py-spy" in str(it.mitigation)
    assert (found.outcome, it.step, it.phase) == (plain.outcome, plain.diagnosis.step, plain.diagnosis.phase)


def test_no_time_of_silence_is_silence_too() -> None:
    assert judged(healthy(), attempt=1, end=None, silent_s=0.0).diagnosis.reason == "hang"


def test_what_the_log_says_goes_before_the_silence() -> None:
    assert judged(failed(), attempt=1, end=None, silent_s=1800.0).diagnosis.reason == "cuda_error"


def test_what_the_log_says_goes_before_the_exit_code() -> None:
    plain = failed()
    found = judged(plain, attempt=1, end=End("exit", 1.0, 1))
    assert (found.outcome, found.diagnosis) == ("failed", plain.diagnosis)


@pytest.mark.parametrize("end", [None, End("exit", 1.0, 0), End("exit", 1.0), End("silence", 1.0)], ids=str)
def test_an_end_without_a_bad_exit_code_is_no_failure(end: End | None) -> None:
    plain = healthy()
    found = judged(plain, attempt=1, end=end)
    assert (found.outcome, found.diagnosis) == (plain.outcome, plain.diagnosis)


def test_one_that_runs_as_far_as_its_log_tells_is_not_judged_by_an_exit_code() -> None:
    running = healthy().model_copy(update={"outcome": "running"})
    assert judged(running, attempt=1, end=End("exit", 1.0, 1)).outcome == "running"


SECRET = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"


def with_secret() -> Report:
    root = EvidenceLine(source=f"s-{SECRET}", line=3, text=f"token {SECRET} refused", frame=f"token {SECRET} in f()")
    plain = report(outcome="failed")
    it = plain.diagnosis.model_copy(update={"root_cause": root, "evidence": [root], "summary": f"said {SECRET}"})
    return plain.model_copy(update={"diagnosis": it})


def test_the_texts_of_a_report_lose_their_secrets() -> None:
    found: Any = redacted(with_secret()).diagnosis
    for text in (found.summary, found.root_cause.text, *(text for one in found.evidence for text in (one.text, one.frame))):
        assert SECRET not in text
        assert text.startswith(("said ", "token "))


def test_all_else_of_a_report_stays() -> None:
    before = with_secret()
    found = redacted(before)
    assert found.diagnosis.root_cause is not None
    assert (found.diagnosis.root_cause.source, found.diagnosis.root_cause.line) == (f"s-{SECRET}", 3)
    same = {"summary": "", "root_cause": None, "evidence": []}
    assert found.diagnosis.model_copy(update=same) == before.diagnosis.model_copy(update=same)
    assert found.model_copy(update={"diagnosis": before.diagnosis}) == before
    assert redacted(healthy()) == healthy()
