"""An array job on real Slurm daemons: the same scores as here, also if a worker is killed and if the coordinator is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation.killed import _begun_again, _finished, write_plan
from diagnose.evaluate.fleets.worker import age, put
from tests.conftest import ROOT
from tests.support import slurm as real


def test_a_sign_of_life_grows_old(tmp_path: Path) -> None:
    put(tmp_path / "here", "")
    assert age(tmp_path / "here") < 5
    os.utime(tmp_path / "here", (time.time() - 100, time.time() - 100))
    assert age(tmp_path / "here") > 90
    assert age(tmp_path / "gone") == float("inf")


@pytest.fixture(scope="module")
def cluster() -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    made = real.Slurm()
    try:
        yield made.start()
    finally:
        made.stop()


def evaluate(plan: Path, cluster: real.Slurm) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "diagnose", "evaluate", str(plan), "--json", "--on", "slurm", "--workers", "3"]
    command += ["--sbatch=--cpus-per-task=1"]
    said = (plan.parent / "said").open("a")
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True, env=cluster.environment)


def until_something_is_finished(plan: Path, many: int) -> None:
    until = time.monotonic() + 90
    while len(_finished(plan)) < many:
        assert time.monotonic() < until, (plan.parent / "said").read_text()
        time.sleep(0.1)


@pytest.mark.server
@pytest.mark.timeout(280)
def test_scores_are_the_same_if_a_worker_and_the_coordinator_are_killed(tmp_path: Path, cluster: real.Slurm) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "here").mkdir()
    plan = write_plan(tmp_path / "slurm", load="none")
    process = evaluate(plan, cluster)
    until_something_is_finished(plan, 2)
    finished, at = _finished(plan), time.time()
    job = cluster.run("squeue", "-h", "-o", "%i").split()[0]
    cluster.run("scancel", "--signal=KILL", job)  # one worker
    until_something_is_finished(plan, len(finished) + 2)

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = evaluate(plan, cluster)
    said, _ = again.communicate(timeout=200)

    assert again.returncode == 0, (plan.parent / "said").read_text()
    command = [sys.executable, "-m", "diagnose", "evaluate", str(write_plan(tmp_path / "here", load="none")), "--json"]
    here: Any = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert json.loads(said)["datasets"] == here["datasets"]
    assert _begun_again(plan.parent / "ledger", finished, at) == []


def with_one_that_fails(plan: Path) -> Path:
    """And a data set whose trial has a mistake."""
    (plan.parent / "broken.py").write_text("row = {'question': 1}\nprint(row['answer'])\n")
    made = json.loads(plan.read_text())
    trial = f"{sys.executable} {plan.parent}/broken.py {{dataset}} {{shard}} {{outputs}}"
    like = {"metric": made["datasets"][0]["metric"], "expected": {"trial": "1s", "metric": "1s"}}
    made["datasets"].append({"name": "broken", "samples": 10, "trial": trial, **like})
    plan.write_text(json.dumps(made))
    return plan


@pytest.mark.server
@pytest.mark.timeout(280)
def test_it_gives_way_to_a_requeue_and_to_a_stop_and_one_that_fails_is_diagnosed(tmp_path: Path, cluster: real.Slurm) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "here").mkdir()
    plan = with_one_that_fails(write_plan(tmp_path / "slurm", load="none"))
    process = evaluate(plan, cluster)
    until_something_is_finished(plan, 2)
    job = cluster.run("squeue", "-h", "-r", "-o", "%A").split()[0]
    cluster.run("scontrol", "requeue", job)  # as for somebody of a higher priority
    until_something_is_finished(plan, len(_finished(plan)) + 2)

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 75
    until = time.monotonic() + 60
    while cluster.run("squeue", "-h", "-o", "%i %T").strip():
        assert time.monotonic() < until, "its workers go with it"
        time.sleep(0.2)
    finished, at = _finished(plan), time.time()
    again = evaluate(plan, cluster)
    said, _ = again.communicate(timeout=200)

    assert again.returncode == 1, (plan.parent / "said").read_text()
    found = json.loads(said)
    assert found["missing"]["broken"]["reason"] == "key_error"
    command = [sys.executable, "-m", "diagnose", "evaluate", str(write_plan(tmp_path / "here", load="none")), "--json"]
    here: Any = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert found["datasets"] == here["datasets"], "the rest went on"
    assert _begun_again(plan.parent / "ledger", finished, at) == []


@pytest.mark.server
@pytest.mark.timeout(280)
def test_an_array_that_is_gone_is_submitted_again(tmp_path: Path, cluster: real.Slurm) -> None:
    """Somebody cancels it, or all its workers ended: nobody would come by himself."""
    plan = write_plan(tmp_path, load="none")
    process = evaluate(plan, cluster)
    until_something_is_finished(plan, 2)
    cluster.run("scancel", cluster.run("squeue", "-h", "-o", "%A").split()[0])
    said, _ = process.communicate(timeout=200)

    assert process.returncode == 0, (plan.parent / "said").read_text()
    assert json.loads(said)["missing"] == {}
