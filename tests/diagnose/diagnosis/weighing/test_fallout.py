"""What the fallout promises: a process that aborts says why before."""

from __future__ import annotations

import pytest

from tests.support.logs import report_of, steps


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("zorch::Error::0::Couldn't open file: part.7 !!!", "file_not_found_error"),
        ("ASSERTION_FAILED (zorch:Rows():grid.cc:8) Assertion failed: (rows == columns)", "assertion_error"),
    ],
)
def test_who_aborts_says_why_before(said: str, reason: str) -> None:
    report = report_of(steps(1, 9) + f"{said}\n  [0x55d0c1a2b3c0] run + 0x12\nAborted (core dumped)\n")
    assert report.diagnosis.reason == reason
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == said


def test_who_crashes_may_have_said_anything_before() -> None:
    report = report_of(steps(1, 9) + "zorch: couldn't open file: part.7\nSegmentation fault (core dumped)\n")
    assert report.diagnosis.reason == "native_crash"
