"""What the weights promise: each signal has one, its sign stays, and probabilities sum to one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.diagnosis.calibration import Calibration
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.signals import BY_NAME, SIGNALS
from diagnose.diagnosis.weights import read, shipped_weights, spread
from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from tests.support.logs import RAISED, job_of


def test_a_weight_of_the_wrong_sign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"weights": {"echo": 1.0}, "calibration": {"slope": 1.0, "offsets": {}, "ceiling": 0.99}}')
    with pytest.raises(RuleError, match="echo"):
        read(path)


def test_probabilities_sum_to_one_and_are_the_sums_of_the_weights() -> None:
    job = job_of(RAISED.format(what="KeyError: 'x'"))
    weighed = job.finding(job.evidence()).weighed
    weights = shipped_weights()
    assert sum(one.probability for one in weighed) == pytest.approx(1.0)
    for one in weighed:
        assert one.score == pytest.approx(sum(weights.of[name] * value for name, value in one.signals.items()))
    nothing: list[Hypothesis] = []
    spread(nothing, weights)


def test_confidence_rises_with_the_odds_within_a_kind() -> None:
    calibration = Calibration(0.5, {"line": -1.0}, 0.98)
    said = [calibration.confidence(p, "line") for p in (0.1, 0.5, 0.9, 1.0)]
    assert said == sorted(said)
    assert said[-1] <= 0.98


def test_the_page_names_every_signal() -> None:
    page = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text("utf-8")
    assert [
        one.name for one in SIGNALS if f"| `{one.name}` | {'+' if one.weight > 0 else '−'} | {one.says} |" not in page
    ] == []


def test_shipped_weights_name_every_signal_and_keep_their_signs() -> None:
    data = json.loads((shipped.folder("rules") / "weights.json").read_text())
    assert set(data["weights"]) == set(BY_NAME)
    for signal in SIGNALS:
        assert data["weights"][signal.name] * signal.weight >= 0
