"""Which bars of a chart over time have their time below them."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from service.dashboard.overview import course
from service.store.pages.asked import Asked

DAY = 86400.0
MIDNIGHT = 20_000 * DAY


def labels(since: float, length: float, bars: int) -> list[tuple[float, str]]:
    """(place, words) of each."""
    picture = str(course([{"script": 1}] * bars, Asked(since, since + length + 1), (length + 1) / bars))
    return [(float(x), words) for x, words in re.findall(r'class="label" x="([\d.]+)"[^>]*>([^<]+)<', picture)]


@pytest.mark.parametrize("bars", [24, 28, 30])
@pytest.mark.parametrize("hour", [0, 1, 9, 16.7, 23.9])
def test_each_day_of_a_week_has_its_label(hour: float, bars: int) -> None:
    since = MIDNIGHT + hour * 3600
    found = [words for _, words in labels(since, 7 * DAY, bars)]
    days = [time.strftime("%d %b", time.gmtime(since + day * DAY)) for day in range(8)]
    assert found in (days, days[:7], days[1:])


def test_hours_of_several_days_are_not_told_without_their_day() -> None:
    assert [words for _, words in labels(MIDNIGHT + 3600, 2.3 * DAY, 30)] == ["04 Oct", "05 Oct", "06 Oct"]
    picture = str(course([{"script": 1}] * 30, Asked(MIDNIGHT, MIDNIGHT + 2.5 * DAY), 2 * 3600))
    assert "<title>05 Oct 02:00 UTC: script 1</title>" in picture


def test_a_month_has_a_label_a_week() -> None:
    assert [words for _, words in labels(MIDNIGHT + 60_000, 30 * DAY, 30)] == ["04 Oct", "11 Oct", "18 Oct", "25 Oct", "01 Nov"]


@pytest.mark.parametrize(
    ("length", "bars"),
    [(3600, 12), (DAY, 24), (2 * DAY, 24), (3 * DAY, 24), (7 * DAY, 28), (10 * DAY, 24), (30 * DAY, 30), (90 * DAY, 30)],
)
@pytest.mark.parametrize("hour", [0, 2.5, 16.7, 23.9])
def test_labels_have_room_on_a_phone_and_lie_even(hour: float, length: float, bars: int) -> None:
    places = [place for place, _ in labels(MIDNIGHT + hour * 3600, length, bars)]
    apart = [after - before for before, after in pairwise(places)]
    assert min(apart) > 90, "six letters, as large as a phone shows them"
    assert max(apart) - min(apart) <= 2 * 916 / bars
