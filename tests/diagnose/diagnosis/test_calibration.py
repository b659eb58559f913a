"""Probability -> confidence, by a line that was fitted."""

from __future__ import annotations

import math

import pytest

from diagnose.diagnosis.calibration import Calibration, log_odds


def test_log_odds_are_even_at_one_half_and_bounded_at_the_ends() -> None:
    assert log_odds(0.5) == 0
    assert log_odds(0.8) == pytest.approx(math.log(4))
    assert log_odds(0.2) == pytest.approx(-math.log(4))
    assert log_odds(1.0) == pytest.approx(-log_odds(0.0))


def test_a_falling_line_is_refused_and_a_flat_one_is_not() -> None:
    fitted = {"offsets": {"line": -1.0}, "ceiling": 0.98}
    with pytest.raises(ValueError, match="negative"):
        Calibration.read({"slope": -0.1, **fitted})
    flat = Calibration.read({"slope": 0, **fitted})
    assert {flat.confidence(p, "line") for p in (0.1, 0.9)} == {0.27}
    assert {flat.confidence(p, "rule") for p in (0.1, 0.9)} == {0.5}
