"""A small real training with the real service: killed, damaged and gone wrong, and resumed without a person."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.diagnose.checkpoints.samples import flip
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]
pytest.importorskip("torch")
SMALL = ("--width", "64", "--layers", "1", "--save-every", "10")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("checkpoints") / "data") as running:
        yield running


def train(folder: Path, *words: str, server: Server | None = None, job: str = "", attempt: int = 1) -> str:
    """The example, under the runner if there is a service; what it printed."""
    command = [sys.executable, str(ROOT / "examples" / "checkpoints.py"), "--folder", "ckpt", *SMALL, *words]
    if server is not None:
        state = str(folder / "spool")
        runner = ["runner", "--job", job, "--attempt", str(attempt), "--state", state]
        command = [sys.executable, "-m", "diagnose", *runner, "--", *command]
    named = {"DIAGNOSE_URL": server.url, "DIAGNOSE_JOB": job, "DIAGNOSE_ATTEMPT": str(attempt)} if server is not None else {}
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **named}, capture_output=True, text=True, timeout=240
    )
    return done.stdout


def losses(folder: Path) -> dict[int, str]:
    """Step -> the last loss that was recorded for it, with all its bits."""
    lines = (folder / "ckpt" / "diagnose-losses.txt").read_text().splitlines()
    return {int(line.split()[0]): line.split()[1] for line in lines}


def begun(printed: str) -> int:
    (step,) = re.findall(r"^resuming at step (\d+):", printed, re.MULTILINE)
    return int(step)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert "training finished" in train(folder, "--steps", "60")
    return losses(folder)


def test_killed_and_damaged_it_trains_as_if_nothing_had_happened(
    server: Server, undisturbed: dict[int, str], tmp_path: Path
) -> None:
    train(tmp_path, "--steps", "60", "--kill-at", "37", server=server, job="killed")
    whole = [one for one in sorted((tmp_path / "ckpt").glob("step_*")) if (one / "diagnose-manifest.json").exists()]
    flip(whole[-1] / "__0_0.distcp", 100_000)
    printed = train(tmp_path, "--steps", "60", server=server, job="killed", attempt=2)

    assert begun(printed) == int(whole[-2].name[-9:])
    assert f"{whole[-1].name}: __0_0.distcp: bytes 0 to" in printed
    assert re.search(r"^equal: the losses of steps \d+ to \d+ are those of before, bit by bit$", printed, re.MULTILINE)
    assert losses(tmp_path) == undisturbed
    found = server.get("/v1/jobs/killed/checkpoints")["checkpoints"]
    bad = [(one["attempt"], one["step"], "__0_0.distcp" in one["why"]) for one in found if one["good"] is False]
    assert bad == [(1, int(whole[-1].name[-9:]), True)]  # the second attempt saved that step anew, elsewhere


def test_gone_wrong_it_goes_back_by_the_words_of_the_service(server: Server, tmp_path: Path) -> None:
    """Nobody approves anything: the second attempt takes the roll-back that the service proposes."""
    train(tmp_path, "--steps", "160", "--poison", "100:106", server=server, job="spiked")
    until = time.monotonic() + 180
    while not any(one["kind"] == "rollback_and_skip" for one in server.get("/v1/actions", job="spiked")["actions"]):
        assert time.monotonic() < until, f"no roll-back was proposed: {server.get('/v1/jobs/spiked/report')['diagnosis']}"
        time.sleep(0.2)
    printed = train(
        tmp_path, "--steps", "170", "--poison", "100:106", "--take-proposed", server=server, job="spiked", attempt=2
    )

    first = min(int(one) for one in re.findall(r"^skipping batch (\d+)$", printed, re.MULTILINE))
    assert 80 <= begun(printed) <= first <= 100
    assert "training finished" in printed
    recorded = {step: float.fromhex(loss) for step, loss in losses(tmp_path).items()}
    last = [recorded[step] for step in range(166, 171)]
    assert max(last) < 4.0, "it learns on, without the batches that spoilt it"
    found = server.get("/v1/jobs/spiked/checkpoints")["checkpoints"]
    spoilt = [one for one in found if one["attempt"] == 1 and one["step"] > 101]
    assert spoilt
    assert all(one["good"] is False and one["why"] for one in spoilt)
