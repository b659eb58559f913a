"""The waits between tries, without waiting."""

from __future__ import annotations

import random

import pytest

from diagnose.backoff import Backoff


def test_waits_double_up_to_their_bound_and_stay_there() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_the_factor_is_its_own() -> None:
    assert [Backoff(1.0, 100.0, factor=3.0).after(failures) for failures in (1, 2, 3)] == [1.0, 3.0, 9.0]


@pytest.mark.parametrize("failures", [0, -1])
def test_who_has_not_failed_waits_as_after_the_first_failure(failures: int) -> None:
    assert Backoff(0.5, 3.0).after(failures) == 0.5


def test_without_a_first_wait_there_is_none() -> None:
    assert Backoff(0.0, 60.0).after(50) == 0.0


def test_a_first_wait_above_the_bound_is_the_bound() -> None:
    assert Backoff(300.0, 60.0).after(1) == 60.0


def test_chance_takes_its_share_and_no_more() -> None:
    backoff = Backoff(1.0, 8.0, spread=0.25)
    drawn = [backoff.after(4, random.Random(seed).uniform) for seed in range(200)]
    assert min(drawn) >= 6.0
    assert max(drawn) <= 8.0
    assert max(drawn) - min(drawn) > 1.5, "it draws from the whole of its share"


def test_two_who_wait_do_not_come_back_together() -> None:
    backoff = Backoff(1.0, 60.0, spread=0.5)
    one, other = (random.Random(seed).uniform for seed in (1, 2))
    assert all(backoff.after(failures, one) != backoff.after(failures, other) for failures in range(1, 20))
