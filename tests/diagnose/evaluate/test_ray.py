"""A real Ray cluster of four simulated nodes: the same scores as here, also if a node dies or the coordinator is killed."""

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
from tests.conftest import ROOT

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


@pytest.fixture
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    made.workers = [made.add_node(num_cpus=2, num_gpus=1) for _ in range(4)]
    try:
        yield made
    finally:
        made.shutdown()
        # Ray's nodes end the process on SIGTERM, and leave that handler to the tests that come after
        signal.signal(signal.SIGTERM, before)


def evaluate(plan: Path, cluster: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "diagnose", "evaluate", str(plan), "--json", "--on", "ray", "--address", cluster.address]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=(plan.parent / "said").open("a"), text=True)


def until_something_is_finished(plan: Path) -> None:
    until = time.monotonic() + 90
    while len(_finished(plan)) < 4:
        assert time.monotonic() < until, (plan.parent / "said").read_text()
        time.sleep(0.1)


def here(folder: Path) -> Any:
    folder.mkdir()
    command = [sys.executable, "-m", "diagnose", "evaluate", str(write_plan(folder)), "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_scores_are_the_same_if_a_node_dies_and_if_the_coordinator_is_killed(tmp_path: Path, cluster: Any) -> None:
    folder = tmp_path / "ray"
    folder.mkdir()
    plan = write_plan(folder)
    process = evaluate(plan, cluster)
    until_something_is_finished(plan)

    finished, at = _finished(plan), time.time()
    cluster.remove_node(cluster.workers[0], allow_graceful=False)
    time.sleep(1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = evaluate(plan, cluster)
    said, _ = again.communicate(timeout=180)

    assert again.returncode == 0, (folder / "said").read_text()
    assert json.loads(said)["datasets"] == here(tmp_path / "here")["datasets"]
    assert _begun_again(folder / "ledger", finished, at) == []
    nodes = {json.loads(line)["node"] for line in (folder / "evaluation/ckpt/spans.jsonl").read_text().splitlines()}
    assert len(nodes) >= 3
