"""Two series of one quantity: whether they can both be right."""

from __future__ import annotations

import random

import pytest

from diagnose.compression.contradiction import contradict
from diagnose.diagnosis.detectors import Course, findings
from diagnose.matching.databases import core
from diagnose.matching.series import Column, Series, rows, summary
from tests.support.logs import job_of

NAN = float("nan")


def series(values: list[float], *, first: float = 1, told: bool = True) -> Series:
    made, column = Series(), Column.empty()
    for at, value in enumerate(values):
        column.append(first + at if told else NAN, value, at + 1, 0, 1)
    made.extend(column, summary, rows)
    return made


def course(times: float = 1.0, noise: float = 0.01, count: int = 60) -> list[float]:
    dice = random.Random(count)
    return [times * (2 + 8 * 0.95**n) * (1 + dice.uniform(-noise, noise)) for n in range(count)]


FALLS, RISES = course(), course()[::-1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (series(FALLS), series(course(2.0))),
        (series(FALLS), series(RISES)),
        (series(FALLS, told=False), series(course(3.0), told=False)),
        (series(FALLS, told=False), series(RISES, told=False)),
        (series(FALLS), series([-value for value in FALLS], told=False)),
        (series(FALLS), series(course(2.0)[:5])),
    ],
    ids=[
        "others at one step",
        "one rises",
        "another size without steps",
        "one rises, without steps",
        "another sign",
        "at five steps",
    ],
)
def test_these_contradict(one: Series, other: Series) -> None:
    assert contradict(one, other)
    assert contradict(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (series(FALLS), series(course(1.02))),
        (series(FALLS), series(FALLS[40:], first=41)),
        (series(FALLS, told=False), series(course(1.2, 0.1), told=False)),
        (series(FALLS), series(RISES[:3])),
        (series(FALLS), series([NAN] * 60)),
        (series(FALLS, told=False), series(FALLS[:10], told=False)),
        (series(FALLS, told=False), series([value * (3 - 2 * n / 59) for n, value in enumerate(FALLS)], told=False)),
    ],
    ids=[
        "rounded",
        "a part of it",
        "a noisy mean of it",
        "too few",
        "not a number",
        "too few without steps",
        "it began higher",
    ],
)
def test_these_may_both_be_right(one: Series, other: Series) -> None:
    assert not contradict(one, other)
    assert not contradict(other, one)


@pytest.mark.parametrize(
    ("name", "told"),
    [("train_loss", True), ("other_loss", True), ("avg_loss", False), ("loss_classifier", False), ("reward", False)],
)
def test_only_what_should_be_the_same_is_told(name: str, told: bool) -> None:
    found = findings(Course({"loss": (0, series(FALLS)), name: (0, series(course(3.0)))}))
    assert [one.detector for one in found if one.detector == "contradiction"] == ["contradiction"] * told


@pytest.mark.skipif(core is None, reason="numbers of unknown lines are read by the native core")
def test_a_loss_that_a_bar_and_a_line_tell_in_two_ways_is_noted() -> None:
    lines = []
    for n, value in enumerate(FALLS, 1):
        lines.append(f"{n:3d}%|####      | {n}/60 [00:{n:02d}<01:00,  1.00it/s, loss={value:.4f}]")
        lines.append(f"wheel {n} says: loss={3 * value:.4f}")
    finding = job_of("\n".join(lines) + "\n").report().diagnosis
    assert any("The log tells its loss twice" in note for note in finding.notes), finding.notes


def test_what_is_told_names_both_values_and_where_the_other_begins() -> None:
    other = series(course(3.0))
    (told,) = findings(Course({"loss": (0, series(FALLS)), "train_loss": (0, other)}))
    last = f"the last loss is {FALLS[-1]:.4g}, and {other.last:.4g} as train_loss."
    assert (told.sentence, told.line) == (f"The log tells its loss twice, and the two differ: {last}", other.bucket(0).line)


def test_sources_are_not_compared_with_each_other() -> None:
    assert findings(Course({"loss": (0, series(FALLS)), "train_loss": (1, series(course(3.0)))})) == []
