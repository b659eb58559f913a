"""The adapter for lm-evaluation-harness: shards merged are what the harness itself gives, to the last digit."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import harness, tiny
from diagnose.evaluate.adapters.lm_eval import _manager, _range, _values, main
from tests.conftest import ROOT


def test_values_are_in_the_order_of_the_samples_or_not_there() -> None:
    rows: list[dict[str, Any]] = [
        {"doc_id": 1, "filter": "none", "acc": 0.0, "ppl": (1, 2)},
        {"doc_id": 0, "filter": "none", "acc": 1.0, "ppl": (1, 2)},
        {"doc_id": 0, "filter": "strict", "acc": 0.5},
    ]
    assert _values("acc,none", rows) == [1.0, 0.0]
    assert _values("acc,strict", rows) == [0.5]
    assert _values("ppl,none", rows) is None
    assert _values("f1,none", rows) is None


def test_a_shard() -> None:
    assert list(_range("3:2")) == [3, 4]


def adapter(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "diagnose.evaluate.adapters.lm_eval", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.server
@pytest.mark.timeout(600)
def test_shards_together_are_what_the_harness_gives(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    tiny.write_model(tmp_path / "ckpt")
    made = tiny.write_tasks(tmp_path / "tasks", (14, 9, 7))
    tasks = ("--include-path", str(tmp_path / "tasks"))
    for first, shards, names in (("0", "0:5,0:9,0:3", "made0,made1,made2"), ("1", "5:9,3:4", "made0,made2")):
        out = tmp_path / "out" / first
        ran = adapter("infer", "--checkpoint", str(tmp_path / "ckpt"), "--tasks", names, "--shards", shards, "--out", str(out),
                      "--device", "cpu", *tasks)  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
        for name, shard in zip(names.split(","), shards.split(","), strict=True):
            place = tmp_path / "trials" / name / shard.replace(":", "-")
            place.parent.mkdir(parents=True, exist_ok=True)
            (out / name).rename(place)

    alone = harness.plain(tmp_path, list(made))
    for name in made:
        score = ["score", "--tasks", name, "--outputs", str(tmp_path / "trials" / name), "--to", str(tmp_path / "s"), *tasks]
        assert main(score) == 0
        assert json.loads((tmp_path / "s").read_text())["scores"] == alone[name]

    # What does not fit is an error: here an answer that was given to another question.
    answers = tmp_path / "trials" / "made0" / "0-5" / "answers.jsonl"
    answers.write_text(answers.read_text().replace('"asked": "', '"asked": "x', 1))
    ran = adapter(
        "score", "--tasks", "made0", "--outputs", str(tmp_path / "trials" / "made0"), "--to", str(tmp_path / "s"), *tasks
    )
    assert ran.returncode != 0
    assert "no trial was asked request" in ran.stderr


@pytest.mark.server
@pytest.mark.timeout(300)
def test_the_data_sets_of_a_plan_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lm_eval")
    tiny.write_tasks(tmp_path, (14, 9))

    assert main(["samples", "--tasks", "made0,made1", "--include-path", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "  - {name: made0, samples: 14}\n  - {name: made1, samples: 9}\n"


@pytest.mark.server
def test_tasks_of_your_own_are_found_without_reading_those_of_the_harness(tmp_path: Path) -> None:
    """Its thousands take seconds, in each trial and each metric."""
    pytest.importorskip("lm_eval")
    tiny.write_tasks(tmp_path, (3, 2))
    alone = argparse.Namespace(what="samples", include_path=str(tmp_path), tasks="made0,made1")
    assert set(_manager(alone).all_tasks) == {"made0", "made1"}


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_group_of_your_own_may_name_tasks_of_the_harness(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    tiny.write_tasks(tmp_path, (3,))
    (tmp_path / "mine.yaml").write_text("group: mine\ntask: [made0, arc_easy]\n")
    mine = argparse.Namespace(what="samples", include_path=str(tmp_path), tasks="mine")
    assert {"made0", "arc_easy"} <= set(_manager(mine).all_tasks)


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_trial_scores_nothing(tmp_path: Path) -> None:
    """Not even by a function of the task's own, which would see made-up answers to the samples of other trials."""
    pytest.importorskip("lm_eval")
    tiny.write_model(tmp_path / "ckpt")
    tiny.write_task(tmp_path, "own", "choice", 4, 1, texts=3)
    (tmp_path / "checks.py").write_text("def choice(doc, results):\n    raise SystemExit('scored')\n")
    ran = adapter("infer", "--checkpoint", str(tmp_path / "ckpt"), "--tasks", "own", "--shards", "1:2", "--out",
                  str(tmp_path / "out"), "--device", "cpu", "--include-path", str(tmp_path))  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "out/own/answers.jsonl").read_text().splitlines()]
    assert {row["doc"] for row in rows} == {1, 2}
