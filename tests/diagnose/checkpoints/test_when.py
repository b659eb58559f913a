from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoints.when import Pace, interval, lost


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
