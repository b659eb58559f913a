"""Measurements that outlive a run, and what they make of the next one's estimates."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.evaluate.estimates import TOLD, UNKNOWN, Belief, Estimates, Overheads, expected
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.suite import DataSet, Metric, Suite
from diagnose.evaluate.work import Load, Scoring, Shard, Trial

USUAL = Overheads(load_s=10, start_s=20, prepare_s=5, metric_s=1)
BELIEVED = Estimates({"a": Belief(1.0, 1), "b": Belief(3.0, 1)}, {"a": Belief(1.0, 1)}, USUAL)


def trial(*shards: Shard) -> Trial:
    return Trial(shards)


def test_what_was_measured_is_known_next_time(tmp_path: Path) -> None:
    first = Priors(tmp_path / "p.db", "7b")
    for took in (225.0, 215.0, 235.0):
        first.add(trial(Shard("a", 0, 100)), took, BELIEVED, 1.0)
    first.add(Scoring(Shard("a", 0, 100)), 51.0, BELIEVED, 1.0)
    first.add(Load("n"), 14.0, BELIEVED, 1.0)
    first.close()

    known = Priors(tmp_path / "p.db", "7b").estimates(USUAL)

    assert known.trials["a"].seconds == pytest.approx(2.0)
    assert known.metrics["a"].seconds == pytest.approx(0.5)
    assert known.overheads.load_s == 14.0
    assert Priors(tmp_path / "p.db", "70b").estimates(USUAL).trials == {}


def test_what_a_start_costs_is_seen_in_pieces_of_different_sizes(tmp_path: Path) -> None:
    priors = Priors(tmp_path / "p.db", "7b")
    for count in (10, 50, 100):
        priors.add(trial(Shard("a", 0, count)), 40 + 2.0 * count, BELIEVED, 1.0)

    known = priors.estimates(USUAL)

    assert known.overheads.start_s + known.overheads.prepare_s == pytest.approx(40)
    assert known.trials["a"].seconds == pytest.approx(2.0)


def test_several_data_sets_in_one_trial_share_its_time_as_it_was_believed(tmp_path: Path) -> None:
    priors = Priors(tmp_path / "p.db", "7b")
    priors.add(trial(Shard("a", 0, 10), Shard("b", 0, 10)), 30 + 80, BELIEVED, 1.0)

    known = priors.estimates(USUAL)

    assert (known.trials["a"].seconds, known.trials["b"].seconds) == (pytest.approx(2.0), pytest.approx(6.0))


def test_a_file_that_is_no_database_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "p.db").write_text("no database, but long enough to be read as the head of one" * 20)

    with pytest.raises(DiagnoseError, match="priors: FILE"):
        Priors(tmp_path / "p.db", "7b")


def test_what_nobody_measured_is_as_long_as_the_others_are() -> None:
    metric = Metric("m")
    datasets = (DataSet("a", 100, "t", metric), DataSet("new", 50, "t", metric), DataSet("told", 50, "t", metric, trial_s=500))
    found = expected(Suite(datasets), Estimates({"a": Belief(2.0, 0.2)}, {}))

    assert (found.trials["new"], found.trials["told"]) == (Belief(200 / 50, UNKNOWN), Belief(10.0, TOLD))
    assert found.unknown == {"new"}


def test_a_measurement_corrects_what_was_believed() -> None:
    told = Estimates({"a": Belief(1.0, TOLD)}, {}, USUAL)

    now = told.after(trial(Shard("a", 0, 100)), 25 + 200)

    assert 1.9 < now.trials["a"].seconds < 2.0
    assert now.trials["a"].spread < 0.2


def test_a_faster_machine_is_faster_for_what_it_has_not_run_yet() -> None:
    told = Estimates({name: Belief(1.0, 0.25) for name in "abcde"}, {}, USUAL)

    now = told.scaled({"e"}, [0.5, 0.5, 0.5, 0.5])

    assert now.trials["e"].seconds == pytest.approx(0.5**0.5)
    assert now.trials["a"].seconds == 1.0
