"""Probability -> confidence, by a line that was fitted."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.calibration import Calibration


def test_a_falling_line_is_refused_and_a_flat_one_is_not() -> None:
    fitted = {"offsets": {"line": -1.0}, "ceiling": 0.98}
    with pytest.raises(ValueError, match="negative"):
        Calibration.read({"slope": -0.1, **fitted})
    flat = Calibration.read({"slope": 0, **fitted})
    assert {flat.confidence(p, "line") for p in (0.1, 0.9)} == {0.27}
    assert {flat.confidence(p, "rule") for p in (0.1, 0.9)} == {0.5}
