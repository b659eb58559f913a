"""A fall is told if it is more than chance, and only then."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from diagnose.evaluate.coordinator import summary
from diagnose.evaluate.falls import falls, noise_of
from diagnose.evaluate.merging import Scores
from diagnose.evaluate.results import Results
from diagnose.evaluate.suite import DataSet, Metric, Suite
from diagnose.evaluate.work import Shard


def scores(values: list[float], name: str = "a") -> dict[str, Scores]:
    return {name: Scores(Shard(name, 0, len(values)), {"acc": float(np.mean(values))}, {"acc": values})}


def answers(share: float, many: int, seed: int) -> list[float]:
    return [float(one) for one in np.random.default_rng(seed).random(many) < share]


def test_six_points_on_a_thousand_samples_are_a_fall() -> None:
    before = answers(0.6, 1000, 1)
    wrong = np.random.default_rng(2).choice(np.flatnonzero(before), 60, replace=False)
    now = [0.0 if number in wrong else one for number, one in enumerate(before)]

    (found,) = falls(scores(before), scores(now))

    assert (found.dataset, found.score) == ("a", "acc")
    assert found.before - found.now == pytest.approx(0.06)
    assert found.chance < 1e-9


def test_six_points_on_fifty_samples_may_be_chance() -> None:
    before = answers(0.6, 50, 1)
    now = [0.0 if number in np.flatnonzero(before)[:3] else one for number, one in enumerate(before)]

    assert falls(scores(before), scores(now)) == []


def test_checkpoints_that_are_alike_give_no_alarm() -> None:
    """40 pairs of suites of 5 data sets: at one in a hundred, none or one may be wrong."""
    alarms = 0
    for seed in range(40):
        one, other = ({}, {})
        for number in range(5):
            one |= scores(answers(0.5, 200, seed * 100 + number), f"s{number}")
            other |= scores(answers(0.5, 200, 50_000 + seed * 100 + number), f"s{number}")
        alarms += bool(falls(one, other))

    assert alarms <= 2


def test_a_rise_is_no_fall_and_what_was_not_there_is_not_compared() -> None:
    assert falls(scores([0.0] * 100), scores([1.0] * 99 + [0.0])) == []
    assert falls({}, scores([0.0] * 100)) == []
    assert falls(scores([1.0] * 90), scores([0.0] * 100)) == []


def test_noise_is_that_of_a_mean() -> None:
    values = answers(0.5, 400, 3)
    assert noise_of(values) == pytest.approx(float(np.std(values)) / 20, rel=0.15)
    assert noise_of([1.0]) == 0.0


def test_it_is_told_against_the_checkpoint_before(tmp_path: Path) -> None:
    suite = Suite((DataSet("a", 100, "t", Metric("m")),))
    for number, (checkpoint, right) in enumerate((("step-1", 90), ("step-2", 80), ("step-3", 30))):
        one = Results(tmp_path / checkpoint, suite, Path(checkpoint))
        path = one.scores(Shard("a", 0, 100))
        path.parent.mkdir(parents=True)
        values = [1] * right + [0] * (100 - right)
        path.write_text(json.dumps({"scores": {"acc": right / 100}, "values": {"acc": values}}))
        found = summary(one)
        os.utime(tmp_path / checkpoint / "scores.json", (1000 + number, 1000 + number))

    assert found["datasets"]["a"]["noise"]["acc"] == pytest.approx(0.046, abs=0.006)
    assert found["before"] == "step-2"
    assert [(fall["dataset"], fall["before"], fall["now"]) for fall in found["falls"]] == [("a", 0.8, 0.3)]
