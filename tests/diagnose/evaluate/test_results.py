"""The folder of an evaluation: what counts as finished, whose it is, and how commands are filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.evaluate.results import Results, append, rows
from diagnose.evaluate.suite import DataSet, Metric, Suite
from diagnose.evaluate.work import Scoring, Shard, Trial

METRIC = Metric("score {dataset} {outputs} {scores}")
SUITE = Suite(
    (DataSet("a", 100, "infer '{checkpoint}' {dataset} {shard} {outputs}", METRIC), DataSet("b", 10, "x", METRIC)), ","
)


def results(folder: Path, suite: Suite = SUITE, checkpoint: str = "/ck pt; rm -rf $HOME") -> Results:
    return Results(folder, suite, Path(checkpoint))


def test_finished_is_what_lies_in_its_place(tmp_path: Path) -> None:
    for name in ("trials/a/0-60", "trials/a/60-40", "trials/a/90-20", "trials/a/x", "trials/a/5-0", "trials/other/0-10"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "scores/b").mkdir(parents=True)
    (tmp_path / "scores/b/0-9.json").write_text("{}")
    (tmp_path / "scores/b/.0-9.json.new").write_text("{")

    assert results(tmp_path).done() == [Trial((Shard("a", 0, 60),)), Trial((Shard("a", 60, 40),)), Scoring(Shard("b", 0, 9))]


def test_a_value_stays_one_word(tmp_path: Path) -> None:
    one = results(tmp_path)
    order = one.order(Trial((Shard("a", 0, 60), Shard("b", 0, 9))), 7, one.checkpoint)

    assert order.command == ("infer", "/ck pt; rm -rf $HOME", "a,b", "0:60,0:9", f"{tmp_path}/scratch/7/outputs")
    assert order.moves == (
        (f"{tmp_path}/scratch/7/outputs/a", f"{tmp_path}/trials/a/0-60"),
        (f"{tmp_path}/scratch/7/outputs/b", f"{tmp_path}/trials/b/0-9"),
    )


def test_a_metric_reads_all_trials_or_the_one_that_had_its_samples(tmp_path: Path) -> None:
    (tmp_path / "trials/a/0-60").mkdir(parents=True)
    split = Suite((replace(SUITE.datasets[0], metric=replace(METRIC, split=True)),))

    whole = results(tmp_path).order(Scoring(Shard("a", 0, 100)), 1, Path("c"))
    part = results(tmp_path, split).order(Scoring(Shard("a", 20, 10)), 1, Path("c"))

    assert whole.command[2] == f"{tmp_path}/trials/a"
    assert part.command[2] == f"{tmp_path}/trials/a/0-60"


@pytest.mark.parametrize(
    ("suite", "checkpoint", "what"),
    [
        (SUITE, "/other", "it has the results of"),
        (Suite((replace(SUITE.datasets[0], samples=101),)), "/ckpt", "a was evaluated with other commands or samples"),
        (Suite((replace(SUITE.datasets[0], trial="other"),)), "/ckpt", "a was evaluated with other commands or samples"),
    ],
    ids=["another checkpoint", "more samples", "another command"],
)
def test_the_results_of_something_else_are_not_gone_on_with(tmp_path: Path, suite: Suite, checkpoint: str, what: str) -> None:
    results(tmp_path, checkpoint="/ckpt").check_same()
    results(tmp_path, checkpoint="/ckpt").check_same()

    with pytest.raises(DiagnoseError, match=what):
        results(tmp_path, suite, checkpoint).check_same()


def test_more_data_sets_are_welcome(tmp_path: Path) -> None:
    results(tmp_path, Suite(SUITE.datasets[:1])).check_same()
    results(tmp_path).check_same()


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    append(tmp_path / "x.jsonl", {"a": 1})
    with (tmp_path / "x.jsonl").open("a") as file:
        file.write('{"a": ')

    assert rows(tmp_path / "x.jsonl") == [{"a": 1}]
