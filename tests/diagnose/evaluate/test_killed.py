"""Real processes, killed: the same scores, and nothing that was finished is done again. The campaign is in the benchmarks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.evaluation.killed import _begun_again, campaign, write_plan
from diagnose.evaluate.work import Shard
from tests.conftest import ROOT


def test_a_shard_that_is_begun_again_is_found(tmp_path: Path) -> None:
    """Or the campaign would show nothing."""
    (tmp_path / "ledger").write_text('["trials", "a", 5, 10, 50.0]\n["scores", "a", 0, 9, 50.0]\n')
    finished = {("trials", Shard("a", 0, 6))}

    assert _begun_again(tmp_path / "ledger", finished, 40.0) == ["trials a/0-6 by 5-10"]
    assert _begun_again(tmp_path / "ledger", finished, 60.0) == []
    assert _begun_again(tmp_path / "ledger", {("trials", Shard("a", 0, 5))}, 40.0) == []


@pytest.mark.server
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    outcome = campaign(tmp_path, 5, seed=3)

    assert outcome.same_scores == outcome.rounds > 0
    assert outcome.repeated == []


@pytest.mark.server
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR1])
def test_it_gives_way_and_the_same_command_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    plan = write_plan(tmp_path)
    command = [sys.executable, "-m", "diagnose", "evaluate", str(plan), "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("evaluation/ckpt/trials/*/*")):
        assert time.monotonic() < until
        time.sleep(0.05)

    process.send_signal(how)

    assert process.wait(60) == 75
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("evaluation/ckpt/trials/*/*")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["datasets"]) == 9
    assert {path: path.stat().st_mtime_ns for path in before} == before
