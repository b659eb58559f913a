"""Where the time of the places went: it adds up."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.evaluate.estimates import Overheads
from diagnose.evaluate.spent import Spent, spent

OVER = Overheads(start_s=3, prepare_s=1)


def span(key: str, begin: float, end: float, well: bool = True) -> dict[str, Any]:
    return {"key": key, "node": "n", "begin": begin, "end": end, "well": well}


def test_each_place_is_in_one_of_these_at_any_moment() -> None:
    spans = [
        span("load/n", 0, 5),
        span("trial/a/0-10", 5, 25),
        span("trial/b/0-5+c/0-5", 5, 15),
        span("trial/d/0-5", 15, 18, well=False),
        span("metric/a/0-10", 25, 40),
    ]
    found = spent(spans, [{"begin": 0.0, "places": {"n": 2}}], OVER, now=40.0)

    assert found == Spent(took_s=40, loading_s=5 * 2 + 4 + 5, inference_s=16 + 5, metric_s=15, failed_s=3, waiting_s=37)
    assert found.loading_s + found.inference_s + found.failed_s + found.waiting_s == 2 * found.took_s


def test_the_time_between_a_kill_and_the_next_start_does_not_count() -> None:
    spans = [span("trial/a/0-10", 0, 10), span("trial/a/10-10", 1000, 1010)]
    runs = [{"begin": 0.0, "places": {"n": 1}}, {"begin": 1000.0, "places": {"n": 1}}]

    found = spent(spans, runs, OVER, now=1010.0)
    assert (found.took_s, found.waiting_s) == (20, 0)


def test_a_trial_that_is_shorter_than_its_loading_is_all_loading() -> None:
    found = spent([span("trial/a/0-1", 0, 2)], [{"begin": 0.0, "places": {"n": 1}}], OVER, now=2.0)
    assert (found.loading_s, found.inference_s) == (2, pytest.approx(0))


def test_nothing_ran() -> None:
    assert spent([], [], OVER, now=5.0) == Spent(0, 0, 0, 0, 0, 0)
