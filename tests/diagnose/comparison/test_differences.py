"""Where the courses of two runs part, whatever steps their curves are kept at."""

from __future__ import annotations

import random

import pytest

from diagnose.comparison.differences import parting_of

Curve = list[list[float | None]]


def loss(step: int) -> float:
    return 2 + 8 / (1 + step / 100)


def curve(count: int, *, seed: int = 0, from_step: int = 10**9, by: float = 0.0) -> Curve:
    dice = random.Random(seed)
    values = [loss(step) + dice.gauss(0, 0.02) + (by if step >= from_step else 0) for step in range(1, count + 1)]
    return [[step, value, value, value] for step, value in enumerate(values, 1)]


def coarse(points: Curve, width: int) -> Curve:
    groups = [points[at : at + width] for at in range(0, len(points), width)]
    return [[group[0][0], sum(point[1] or 0 for point in group) / len(group), 0.0, 0.0] for group in groups]


def test_the_same_run_never_parts() -> None:
    found = parting_of("loss", curve(200), curve(200))
    assert found is not None
    assert (found.equal_to, found.apart_from) == (200, None)


def test_a_run_that_went_on_from_the_same_seed() -> None:
    found = parting_of("loss", curve(200), curve(200, from_step=80, by=1.5))
    assert found is not None
    assert (found.equal_to, found.apart_from) == (79, 80)
    assert found.bad == pytest.approx((found.good or 0) + 1.5)


def test_other_seeds_are_apart_by_their_noise_only() -> None:
    found = parting_of("loss", curve(300), curve(300, seed=1))
    assert found is not None
    assert (found.equal_to, found.apart_from) == (None, None)
    found = parting_of("loss", curve(300), curve(300, seed=1, from_step=120, by=0.8))
    assert found is not None
    assert (found.equal_to, found.apart_from) == (None, 120)


def test_a_spike_that_is_over_is_no_parting() -> None:
    bad = curve(300, seed=1)
    for at in range(100, 106):
        bad[at][1] = 30.0
    found = parting_of("loss", curve(300), bad)
    assert found is not None
    assert found.apart_from is None


@pytest.mark.parametrize("swap", [False, True])
def test_curves_that_are_kept_at_other_steps(swap: bool) -> None:
    whole, thin = curve(400), coarse(curve(400, from_step=201, by=2.0), 4)
    found = parting_of("loss", thin, whole) if swap else parting_of("loss", whole, thin)
    assert found is not None
    assert (found.equal_to, found.apart_from) == (197, 201)


def test_what_is_no_number_is_apart() -> None:
    bad = [[step, None if step >= 50 else value, least, most] for step, value, least, most in curve(100)]
    found = parting_of("loss", curve(100), bad)
    assert found is not None
    assert (found.apart_from, found.bad) == (50, None)


def test_too_few_steps_in_common_tell_nothing() -> None:
    assert parting_of("loss", curve(3), curve(100)) is None
    assert parting_of("loss", [], curve(100)) is None


def test_a_leap_behind_the_end_of_the_good_run() -> None:
    found = parting_of("loss", curve(120), curve(145, seed=1, from_step=121, by=2.5))
    assert found is not None
    assert (found.apart_from, found.common) == (None, 120)
    assert found.leap is not None
    assert found.leap.step == 121
    assert found.leap.before == pytest.approx(loss(117), abs=0.1)
    assert found.leap.value == pytest.approx(loss(121) + 2.5, abs=0.1)


def test_a_leap_that_is_over() -> None:
    bad = curve(300, seed=1)
    bad[100][1] = 30.0
    found = parting_of("loss", curve(300), bad)
    assert found is not None
    assert found.leap is not None
    assert (found.leap.step, found.leap.value) == (101, 30.0)


def test_what_both_runs_do_is_no_leap() -> None:
    found = parting_of("loss", curve(300, from_step=90, by=3.0), curve(300, seed=1, from_step=90, by=3.0))
    assert found is not None
    assert found.leap is None


def test_a_leap_of_the_good_run_hides_no_other() -> None:
    good, bad = curve(300), curve(300, seed=1)
    good[40][1] += 8.0
    bad[40][1] += 8.0
    bad[200][1] += 30.0
    found = parting_of("loss", good, bad)
    assert found is not None
    assert found.leap is not None
    assert found.leap.step == 201


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_course_without_a_leap(name: str) -> None:
    found = parting_of(name, curve(300), curve(900, seed=1))
    assert found is not None
    assert (found.leap, found.common) == (None, 300)
