"""Where the message of an error stands that another line only announces."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.announced import NOTHING, announced
from diagnose.diagnosis.evidence import Event
from tests.support.logs import report_of, steps


def events(*lines: str) -> list[Event]:
    return [Event(order, 0, order + 1, line, -1, 0) for order, line in enumerate(lines)]


def message_of(*lines: str, known: str | None = None) -> int | None:
    """The line that is announced, if any."""
    found = announced(events(*lines), lambda event: event.body == known)
    return next(iter(found.messages)) + 1 if found.messages else None


@pytest.mark.parametrize(
    "banner",
    ["*** ERROR ***", "------- FATAL CALLED -------", "Error:", "!!! A fatal error has occurred !!!", "ABORT"],
)
def test_a_banner_announces_the_line_below_it(banner: str) -> None:
    assert message_of("step 1", banner, "grid.in:12: width is 7") == 3
    assert announced(events("step 1", banner, "grid.in:12: width is 7"), lambda _: False).banners == {1}


@pytest.mark.parametrize("head", ["stack traceback:", "[ Stack-Trace: ]", "[CALL STACK]", "Backtrace:"])
def test_a_stack_announces_the_line_above_it(head: str) -> None:
    assert message_of("step 1", "grid.lua:8: the width is 7", head, "  grid.lua:8: in main") == 2


def test_a_frame_around_the_message_is_no_message() -> None:
    assert message_of("*** ERROR ***", "*************", "the width is 7") == 3


def test_what_a_rule_knows_speaks_for_itself() -> None:
    assert message_of("*** ERROR ***", "CUDA out of memory", known="CUDA out of memory") is None
    assert message_of("*** ERROR ***", "width", known="*** ERROR ***") is None


@pytest.mark.parametrize(
    "line", ["error rate", "Errors", "an error in line 3", "no error", "ERROR: the width is 7", "training", "test: error 0.1"]
)
def test_other_lines_announce_nothing(line: str) -> None:
    assert announced(events("step 1", line, "step 2"), lambda _: False) == NOTHING


def test_a_logger_that_is_calm_announces_nothing() -> None:
    assert message_of("INFO error", "the width is 7") is None
    assert message_of("Error:", "INFO all is well") is None


def test_the_answer_is_the_message() -> None:
    report = report_of(steps(1, 9) + "*** ERROR ***\ngrid.in:12: unused parameter 'width'\n")
    assert report.outcome == "failed"
    assert report.diagnosis.reason == "argument_error"
    assert report.diagnosis.root_cause is not None
    assert "unused parameter" in report.diagnosis.root_cause.text
