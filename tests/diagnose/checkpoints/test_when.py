from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoints.when import Pace, Past, between_failures, interval, lost, present


@given(st.floats(0.01, 300), st.floats(600, 1e7))
def test_no_other_interval_loses_less(cost: float, between: float) -> None:
    best = interval(cost, between)
    assert all(best.lost <= lost(best.seconds * factor, cost, between) * 1.02 for factor in (0.25, 0.5, 0.8, 1.25, 2, 4))


def test_known_figures() -> None:
    """1,024 GPUs with 7.9 h between failures, as Meta has published them: the two answers of Young's formula."""
    assert interval(30, 7.9 * 3600).seconds / 60 == pytest.approx(21.7, abs=0.5)
    assert interval(1, 7.9 * 3600).seconds / 60 == pytest.approx(4.0, abs=0.1)
    assert interval(30, 7.9 * 3600).lost == pytest.approx(0.046, abs=0.001)


def test_writes_do_not_overlap() -> None:
    found = interval(1, 3600, write_s=600)
    assert found.seconds == 600
    assert "a write takes 600 s" in found.why


def test_what_costs_more_than_it_saves_is_rare() -> None:
    assert interval(5000, 1000).seconds == 5000


def test_a_save_costs_what_it_holds_up_and_what_it_slows_down() -> None:
    pace = Pace()
    assert pace.cost_s is None
    for _ in range(10):
        pace.step(1.0, writing=False)
    pace.saved(2.0)
    for _ in range(4):
        pace.step(1.5, writing=True)
    assert pace.slowed_s == pytest.approx(2.0)
    assert pace.cost_s == pytest.approx(4.0)
    pace.saved(2.0)
    assert pace.cost_s == pytest.approx((4.0 + 2.0) / 2)


# How often jobs fail


def test_without_experience_the_assumption_holds() -> None:
    assert between_failures(8, []).seconds == pytest.approx(24 * 3600)


def test_with_much_experience_it_is_what_was_seen() -> None:
    found = between_failures(1024, [Past(1024, 7900.0, 1000), Past(8, 1e6, 200)])
    assert found.seconds == pytest.approx(7.9 * 3600, rel=0.01)
    assert found.why == "1000 failures in 7,900 h of jobs of about 1,024 GPUs, 1200 of all jobs"


def test_a_size_that_nobody_ran_fails_as_often_per_gpu_as_the_fleet() -> None:
    fleet = [Past(256, 3160.0, 100)]  # one failure in 31.6 h
    assert between_failures(1024, fleet).seconds == pytest.approx(7.9 * 3600, rel=0.03)


def test_little_experience_moves_little() -> None:
    fleet = [Past(256, 31600.0, 1000)]
    lucky = between_failures(1024, [*fleet, Past(1024, 40.0, 0)]).seconds
    unlucky = between_failures(1024, [*fleet, Past(1024, 1.0, 2)]).seconds
    assert 7.9 * 3600 < lucky < 3 * 7.9 * 3600
    assert 7.9 * 3600 / 3 < unlucky < 7.9 * 3600


def test_shrunk_rates_are_nearer_to_the_truth_than_plain_ones() -> None:
    """Sizes whose true rates differ by up to a factor of two from the fleet's, each seen for a few failures."""
    dice = random.Random(5)
    plain, shrunk = [], []
    for _ in range(40):
        truth = {2**power: 2e-4 * 2 ** dice.uniform(-1, 1) for power in range(3, 11)}
        past = []
        for gpus, rate in truth.items():
            hours = dice.choice((2, 5, 20)) / (2e-4 * gpus)
            expected = rate * gpus * hours
            past.append(Past(gpus, hours, sum(dice.random() < expected / 1000 for _ in range(1000))))
        for one in past:
            true = 1 / (truth[one.gpus] * one.gpus)
            plain.append(abs(math.log(one.hours / max(one.failures, 0.5) / true)))
            shrunk.append(abs(math.log(between_failures(one.gpus, past).seconds / 3600 / true)))
    assert sum(shrunk) < 0.9 * sum(plain)


# What the present interval costs


def test_the_present_interval_beside_the_best_one() -> None:
    found = present([1000.0 + 1800 * number for number in range(30)], [1.0] * 30, 7.9 * 3600)
    assert found is not None
    assert (found.interval_s, found.cost_s, found.cost_known) == (1800, 1.0, True)
    assert found.lost == pytest.approx(1 / 1801 + 900 / (7.9 * 3600))
    assert found.best_s == pytest.approx(math.sqrt(2 * 7.9 * 3600), rel=0.01)
    assert found.best_lost < found.lost / 3


def test_what_nobody_measured_is_assumed_and_says_so() -> None:
    found = present([0.0, 600.0, 1200.0], [], 86400.0)
    assert found is not None
    assert (found.cost_s, found.cost_known) == (30.0, False)


def test_the_best_interval_is_never_worse_than_the_present_one() -> None:
    best = interval(1.0, 86400.0).seconds
    found = present([0.0, best, 2 * best, 3 * best], [1.0], 86400.0)
    assert found is not None
    assert found.best_lost <= found.lost


@pytest.mark.parametrize("times", [[], [5.0], [5.0, 9.0], [5.0, 5.0, 5.0]])
def test_too_few_saves_have_no_interval(times: list[float]) -> None:
    assert present(times, [1.0], 86400.0) is None
