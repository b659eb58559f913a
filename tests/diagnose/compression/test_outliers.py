"""Which values of a series are worth keeping their lines."""

from __future__ import annotations

from array import array
from math import inf, nan

import pytest

from diagnose.compression.outliers import Watch
from diagnose.matching.series import Column


def column(values: list[float]) -> Column:
    count = len(values)
    places = array("Q", range(count))
    return Column(array("d", places), array("d", values), places, array("I", places), array("I", places))


def test_a_job_that_prints_nan_for_a_week_is_not_kept_whole() -> None:
    """The first fifty are, then the 64th, the 128th and so on."""
    assert Watch(3.0).notable(column([nan] * 300)) == [*range(50), 63, 127, 255]


@pytest.mark.parametrize("value", [nan, inf, -inf, 1000.0])
def test_what_leaps_out_of_the_recent_past_is_kept(value: float) -> None:
    assert Watch(3.0).notable(column([2.0, 2.1] * 20 + [value] + [2.0] * 5)) == [40]


@pytest.mark.parametrize("value", [5.9, 0.0, -1000.0])
def test_what_falls_or_rises_a_little_is_not(value: float) -> None:
    assert Watch(3.0).notable(column([2.0, 2.0] * 20 + [value] + [2.0] * 5)) == []


def test_a_leap_is_seen_soon_after_the_beginning_and_not_before() -> None:
    assert Watch(3.0).notable(column([2.0, 2.0, 1000.0])) == [2]
    assert Watch(3.0).notable(column([2.0, 1000.0])) == []
    assert Watch(3.0).notable(column([nan, nan, nan, 1000.0])) == [0, 1, 2], "there is nothing to leap out of"


def test_how_far_is_a_leap_depends_on_the_level_and_on_how_the_values_vary() -> None:
    calm, restless, negative = [2.0, 2.0] * 20, [2.0, 4.0] * 20, [-2.0, -2.0] * 20
    assert [Watch(3.0).notable(column([*calm, value])) for value in (5.9, 6.1)] == [[], [40]]
    assert [Watch(1.5).notable(column([*calm, value])) for value in (2.9, 3.1)] == [[], [40]]
    assert [Watch(1.5).notable(column([*restless, value])) for value in (19.0, 21.0)] == [[], [40]]
    assert [Watch(3.0).notable(column([*negative, value])) for value in (1.9, 2.1)] == [[], [40]]


def test_a_new_level_is_soon_no_news() -> None:
    found = Watch(3.0).notable(column([2.0] * 40 + [50.0] * 60))
    assert found[0] == 40
    assert len(found) < 40
    assert max(found) < 80


def test_it_goes_on_from_what_was_stored() -> None:
    values = [2.0, 2.1] * 20 + [1000.0] + [nan] * 70
    whole, first = Watch(3.0), Watch(3.0)
    expected = whole.notable(column(values))
    found = first.notable(column(values[:45]))
    second = Watch(3.0)
    second.state = first.state
    assert [*found, *(index + 45 for index in second.notable(column(values[45:])))] == expected
