"""A fall is told if it is more than chance, and only then."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from diagnose.evaluate.falls import Earlier, Fall, chance_of, noise_of
from diagnose.evaluate.falls import falls as falls_of
from diagnose.evaluate.merging import Scores
from diagnose.evaluate.results import Results
from diagnose.evaluate.suite import DataSet, Metric, Suite
from diagnose.evaluate.summary import summary
from diagnose.evaluate.work import Shard


def scores(values: list[float], name: str = "a") -> dict[str, Scores]:
    return {name: Scores(Shard(name, 0, len(values)), {"acc": float(np.mean(values))}, {"acc": values})}


def falls(before: dict[str, Scores], now: dict[str, Scores]) -> list[Fall]:
    return falls_of([Earlier("before", before)], now)


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


def test_few_samples_that_differ_are_counted_exactly() -> None:
    """Ten of twenty became wrong and none right: one of 1,024 cases. By the spread of the ten it would be one of 250,000."""
    assert chance_of(np.array([-1.0] * 10 + [0.0] * 10)) == 1 / 1024
    assert chance_of(np.array([-1.0] * 9 + [1.0])) == 11 / 1024
    assert chance_of(np.zeros(20)) == 1.0


def test_other_numbers_are_judged_by_their_squares() -> None:
    """The same as counting, where both can be done."""
    many = np.array([-1.0] * 60 + [1.0] * 40)
    assert chance_of(many + np.linspace(-1e-6, 1e-6, 100)) == pytest.approx(chance_of(many), rel=0.25)
    assert chance_of(np.array([-1000.0, *[0.001] * 99])) > 0.1, "one sample alone shows nothing"


def test_less_is_better_for_some() -> None:
    def ppl(values: list[float]) -> dict[str, Scores]:
        mean = float(np.mean(values))
        return {"a": Scores(Shard("a", 0, len(values)), {"ppl": mean}, {"ppl": values}, frozenset({"ppl"}))}

    assert [one.score for one in falls(ppl([2.0] * 50), ppl([3.0] * 50))] == ["ppl"]
    assert falls(ppl([3.0] * 50), ppl([2.0] * 50)) == []


def test_a_slow_decline_is_seen_against_one_that_is_further_back() -> None:
    """Each is a little worse than the one before it, by less than can be told."""
    steps = [scores([0.0] * wrong + [1.0] * (200 - wrong)) for wrong in (40, 45, 50, 55, 60)]
    before = [Earlier(f"step-{number}", one) for number, one in reversed(list(enumerate(steps[:-1])))]

    assert falls_of(before[:1], steps[-1]) == []
    (found,) = falls_of(before, steps[-1])
    assert found.against == "step-2", "the nearest that shows it"


def test_it_is_told_against_the_checkpoints_of_earlier_steps(tmp_path: Path) -> None:
    """Not against those that were evaluated before, but are of later steps."""
    suite = Suite((DataSet("a", 100, "t", Metric("m")),))
    for number, (checkpoint, right) in enumerate((("step-9", 10), ("step-1", 90), ("step-2", 80), ("step-3", 30))):
        one = Results(tmp_path / checkpoint, suite, Path(checkpoint))
        path = one.scores(Shard("a", 0, 100))
        path.parent.mkdir(parents=True)
        values = [1] * right + [0] * (100 - right)
        path.write_text(json.dumps({"scores": {"acc": right / 100}, "values": {"acc": values}}))
        found = summary(one)
        os.utime(tmp_path / checkpoint / "scores.json", (1000 + number, 1000 + number))

    assert found["step"] == 3
    assert found["datasets"]["a"]["noise"]["acc"] == pytest.approx(0.046, abs=0.006)
    assert found["before"] == ["step-2", "step-1"]
    fallen = [(fall["dataset"], fall["against"], fall["before"], fall["now"]) for fall in found["falls"]]
    assert fallen == [("a", "step-2", 0.8, 0.3)]


def test_what_lies_beside_and_cannot_be_read_is_no_comparison(tmp_path: Path) -> None:
    suite = Suite((DataSet("a", 100, "t", Metric("m")),))
    for checkpoint in ("step-1", "step-2"):
        path = Results(tmp_path / checkpoint, suite, Path(checkpoint)).scores(Shard("a", 0, 100))
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"scores": {"acc": 0.5}, "values": {"acc": [1, 0] * 50}}) if checkpoint == "step-2" else "{")
    (tmp_path / "step-1" / "scores.json").write_text("{}")

    found = summary(Results(tmp_path / "step-2", suite, Path("step-2")))
    assert (found["falls"], found["datasets"]["a"]["scores"]) == ([], {"acc": 0.5})
