"""How a job went on behind a line: what diagnosis asks before it believes that a failure ended it."""

from __future__ import annotations

import pytest

from diagnose.compression.kept_log import Course
from tests.support.logs import job_of, steps


def course(text: str) -> Course:
    return job_of(text).compression.course(0)


RESTARTED = steps(1, 9) + steps(4, 6)
"""lines 1 to 9 are steps 1 to 9, lines 10 to 12 steps 4 to 6"""


@pytest.mark.parametrize(
    ("line", "anew", "step", "signs"),
    [
        pytest.param(0, True, None, 12, id="before the first step"),
        pytest.param(4, False, 4, 8, id="a later step lies behind what comes again"),
        pytest.param(5, True, 5, 7, id="step 4 comes again"),
        pytest.param(9, True, 9, 3, id="the last line of the first process"),
        pytest.param(10, False, 4, 2, id="the second process"),
        pytest.param(12, False, 6, 0, id="the last line"),
        pytest.param(99, False, 6, 0, id="behind it"),
    ],
)
def test_a_process_that_was_started_anew_goes_back(line: int, anew: bool, step: float | None, signs: int) -> None:
    found = course(RESTARTED)
    assert (found.begins_anew(line), found.step_at(line), found.signs_after(line)) == (anew, step, signs)


def test_steps_are_gained_until_the_last_that_was_told() -> None:
    found = course(steps(1, 9) + "bye\n")
    assert [found.steps_gained(line) for line in (0, 1, 8, 9, 10)] == [0, 8, 1, 0, 0]


def test_a_log_without_steps_never_went_on() -> None:
    found = course("hello\nworld\n")
    assert (found.begins_anew(0), found.step_at(2), found.steps_gained(0), found.signs_after(0)) == (False, None, 0, 0)
