"""What is said against an answer, and what is missing: sentences that a person reads before they act."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.doubt import NO_END
from tests.support.logs import report_of, steps

BEGUN = 'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in <module>\n'
ECHO = (
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2356, remote process exited or there"
    " was a network error, NCCL version 2.21.5\n"
)


@pytest.mark.parametrize(
    ("log", "doubt"),
    [
        pytest.param(BEGUN + "KeyError: 'x'\n", [], id="nothing"),
        pytest.param(
            "2026-01-01 10:00:00 WARNING trainer: CUDA error: an illegal memory access was encountered\n",
            ["Against the line speaks that its logger calls it a warning."],
            id="its logger",
        ),
        pytest.param(
            ECHO,
            ["The line only echoes a failure elsewhere; no line of this log shows the failure itself."],
            id="an echo alone",
        ),
        pytest.param(
            "something broke badly: FATAL ERROR, giving up\n",
            ["No rule knows a line that explains the failure."],
            id="no rule",
        ),
        pytest.param(steps(1, 9), [NO_END], id="no end"),
        pytest.param("hello\n", [NO_END, "The log shows no step, no loss and no progress bar."], id="nothing to see"),
        pytest.param(steps(1, 9) + "Training completed successfully.\n", [], id="it ended well"),
    ],
)
def test_what_is_doubtful_is_said_and_nothing_else(log: str, doubt: list[str]) -> None:
    assert report_of(log).diagnosis.doubt == doubt


def test_an_answer_that_is_almost_as_likely_is_named_with_its_line() -> None:
    parts = "".join(f"wrote part {name * 3} of it\n" for name in "abcdefghijkl")
    report = report_of(f"{steps(1, 40)}ERROR the lease of the cache could not be renewed\n{parts}")
    assert report.outcome == "healthy"
    first, last = report.diagnosis.doubt
    assert first.startswith("Another answer is almost as likely: unknown, by line 41 (")
    assert last == NO_END


def test_rivals_are_named_with_their_lines() -> None:
    raised = BEGUN.replace("<module>", "{}") + "{}\n"
    text = raised.format("load", "ValueError: no such thing") + "hello\n" * 3 + raised.format("save", "KeyError: 'x'")
    diagnosis = report_of(text).diagnosis
    rivals = [one for one in diagnosis.alternatives if one.confidence >= 0.15]
    said = [sentence for sentence in diagnosis.doubt if sentence.startswith("Another answer is almost as likely")]
    assert len(said) == len(rivals)
    for rival, sentence in zip(rivals, said, strict=True):
        where = f", by line {rival.line.line:,}" if rival.line is not None else ""
        assert f"{where} ({rival.confidence:.0%})." in sentence
