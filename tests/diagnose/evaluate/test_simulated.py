"""A slice of the simulation: the same seed is the same suite, and the plan is better by a wide margin."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.evaluation.simulated import LONG, World, draw, naive, one_seed, ours, table

SMALL = replace(World(), datasets=24, places=4)


def test_the_same_seed_is_the_same_suite() -> None:
    assert draw(SMALL, 1) == draw(SMALL, 1) != draw(SMALL, 2)


def test_the_plan_ends_sooner_than_either_plain_one() -> None:
    found = one_seed(SMALL, 1, 1)

    assert found["ours"] < found["longest"] <= found["random"]
    assert found["wrong"] < found["random"]


def test_long_metrics_do_not_hold_places() -> None:
    world = replace(LONG, datasets=16, places=4, judged=4)
    drawn = draw(world, 5)

    assert ours(world, drawn, 2, 5) * 1.5 < naive(world, drawn, 2, 5, longest_first=True)


def test_the_truth_is_not_shorter_than_the_work() -> None:
    """Or the simulation would prove anything."""
    drawn = draw(SMALL, 3)
    least = sum(drawn.truth.trials[one.name].seconds * one.samples for one in drawn.suite.datasets) / SMALL.places

    assert ours(SMALL, drawn, 1, 3) > least * 0.9


def test_the_table_has_a_row_for_each_kind() -> None:
    spread = (1.5, 1.0, 2.0)
    row = {"suite": "x", "nodes": 4, "makespan_s": 600.0, "against random": spread, "against longest first": spread,
           "priors wrong by two cost": (0.1, 0.0, 0.2)}  # fmt: skip
    assert table([row]).splitlines()[-1] == "| x | 4 | 10 min | 1.50 (1.00 to 2.00) | 1.50 (1.00 to 2.00) | 10% (0% to 20%) |"
