"""GPU time lost, by its definition."""

from __future__ import annotations

import pytest

from diagnose.decision.lost import lost


def test_without_a_checkpoint_the_whole_run_is_lost_and_it_says_so() -> None:
    found = lost(3600, start_up_s=300, still_s=600, first=1, last=100)
    assert (found.seconds, found.whole) == (3600, True)


def test_only_the_work_since_the_checkpoint_is_lost() -> None:
    found = lost(3600 + 300 + 600, start_up_s=300, still_s=600, first=1, last=1000, saved=900)
    assert (found.work_s, found.still_s, found.back_s, found.whole) == (pytest.approx(360), 600, 300, False)


def test_a_checkpoint_in_the_last_step_leaves_only_the_way_back() -> None:
    assert lost(10_000, start_up_s=100, first=1, last=5000, saved=5000).seconds == 100


def test_an_attempt_that_came_from_a_checkpoint_loses_what_it_did_itself() -> None:
    found = lost(1000, first=5001, last=6000)
    assert (found.seconds, found.whole) == (1000, False)
    assert lost(1000, first=5001, last=6000, saved=5000).seconds == 1000


@pytest.mark.parametrize("known", [{"saved": 10}, {"saved": 10, "last": 20}, {"saved": 10, "first": 20, "last": 10}])
def test_without_steps_nobody_can_tell_what_a_checkpoint_saved(known: dict[str, float]) -> None:
    assert lost(1000, **known).whole


def test_parts_are_never_longer_than_the_run() -> None:
    assert lost(100, start_up_s=300, still_s=600).seconds == 100
    assert lost(-5).seconds == 0
