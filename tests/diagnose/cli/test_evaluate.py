"""``diagnose evaluate``: a plan file in, the plan out."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Run

PLAN = """\
checkpoint: ckpt
priors: priors.db
trial: infer {checkpoint} {dataset} {shard} {outputs}
metric: score {outputs} {scores}
datasets:
  - {name: long, samples: 1000, expected: {trial: 2h, metric: 1m}}
  - {name: short, samples: 10, expected: {trial: 1m, metric: 1m}}
nodes:
  - {name: gpu-1, places: 4, processors: 8}
"""


def test_the_plan_is_printed(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)

    done = diagnose("evaluate", "plan.yaml", "--pieces", "--dry-run")

    assert done.returncode == 0, done.stderr
    assert "2 data sets with 1,010 samples on 1 node: 4 places for trials, 8 processors for metrics." in done.stdout
    assert "in four of five cases" in done.stdout
    assert "metric/long/0-1000" in done.stdout


def test_a_checkpoint_that_is_not_there_is_not_evaluated(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)

    done = diagnose("evaluate", "plan.yaml")

    assert done.returncode == 2
    assert "there is no such checkpoint; give another with --checkpoint" in done.stderr


def test_a_mistake_is_one_line(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("{shard}", "{shards}"))

    done = diagnose("evaluate", "plan.yaml")

    assert done.returncode == 2
    assert done.stderr == "diagnose: plan.yaml:3: there is no {shards}; did you mean {shard}?\n"
