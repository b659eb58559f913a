"""``diagnose evaluate --watch`` beside a real writer of checkpoints, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints import manifest
from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

TRIAL = """
import json, os, sys, time
checkpoint, _, first, count, out = sys.argv[1:]
wrong = int(open(os.path.join(checkpoint, "weights")).read())
time.sleep(0.01 * int(count))
answers = [sample % 100 >= wrong for sample in range(int(first), int(first) + int(count))]
json.dump(answers, open(os.path.join(out, "answers.json"), "w"))
"""
METRIC = """
import glob, json, os, sys
outputs, to = sys.argv[1:]
paths = sorted(glob.glob(os.path.join(outputs, "*", "answers.json")), key=lambda path: int(path.split("/")[-2].split("-")[0]))
values = [float(one) for path in paths for one in json.load(open(path))]
json.dump({"scores": {"acc": sum(values) / len(values)}, "values": {"acc": values}}, open(to, "w"))
"""


def plan(folder: Path) -> Path:
    (folder / "trial.py").write_text(TRIAL)
    (folder / "metric.py").write_text(METRIC)
    made: dict[str, Any] = {
        "priors": "priors.db",
        "trial": f"{sys.executable} {folder}/trial.py {{checkpoint}} {{dataset}} {{first}} {{count}} {{outputs}}",
        "metric": f"{sys.executable} {folder}/metric.py {{outputs}} {{scores}}",
        "costs": {"load": "0.1s", "start": "0.1s", "prepare": "0.01s", "metric": "0.1s"},
        "nodes": [{"name": "here", "places": 2, "processors": 1}],
        "datasets": [{"name": "a", "samples": 200, "expected": {"trial": "2s", "metric": "0.1s"}}],
    }
    (folder / "plan.yaml").write_text(json.dumps(made))
    return folder / "plan.yaml"


def save(folder: Path, step: int, wrong: int, *, damaged: bool = False) -> None:
    """A checkpoint whose model answers so many of a hundred wrong. It is there at once."""
    path, made = folder / "ckpt" / f"step_{step:09}", folder / "made"
    made.mkdir()
    (made / "weights").write_text(str(wrong))
    manifest.seal(made, step)
    if damaged:
        (made / "weights").write_text(str(wrong - 1))
    path.parent.mkdir(exist_ok=True)
    made.rename(path)


def until_scored(folder: Path, step: int) -> None:
    until = time.monotonic() + 60
    while not (folder / "evaluation" / f"step_{step:09}" / "scores.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def watch(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "diagnose", "evaluate", str(folder / "plan.yaml"), "--watch", str(folder / "ckpt")]
    command += ["--json", "--every", "0.2s", *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_checkpoints_are_scored_as_they_come_and_a_fall_is_an_alarm(tmp_path: Path) -> None:
    plan(tmp_path)
    save(tmp_path, 100, 20)
    process = watch(tmp_path, "--idle", "6s")

    def train() -> None:
        until_scored(tmp_path, 100)
        save(tmp_path, 200, 19)
        save(tmp_path, 300, 19, damaged=True)
        until_scored(tmp_path, 200)
        save(tmp_path, 400, 45)

    training = threading.Thread(target=train)
    training.start()
    out, said = process.communicate(timeout=120)
    training.join()

    assert process.returncode == 0, said
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["step"], one["datasets"]["a"]["scores"]["acc"]) for one in found] == [(100, 0.8), (200, 0.81), (400, 0.55)]
    assert [one["falls"] for one in found[:2]] == [[], []]
    assert found[2]["falls"][0]["against"] == "step_000000200"
    assert found[2]["spent"]["inference_s"] > 1
    assert "step_000000300 is left out: it is damaged" in said
    assert "alarm: step_000000400: acc of a went from 0.8100 (step_000000200) to 0.5500" in said


def test_it_is_stopped_and_goes_on_without_doing_again_what_is_finished(tmp_path: Path) -> None:
    plan(tmp_path)
    save(tmp_path, 100, 20)
    process = watch(tmp_path)
    trials = tmp_path / "evaluation" / "step_000000100" / "trials" / "a"
    until = time.monotonic() + 60
    while not (trials.is_dir() and list(trials.iterdir())):
        assert time.monotonic() < until
        time.sleep(0.02)
    finished = {path.name: path.stat().st_mtime_ns for path in trials.iterdir()}
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 75

    again = watch(tmp_path, "--idle", "1s")
    out, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert [json.loads(line)["step"] for line in out.splitlines()] == [100]
    assert {name: (trials / name).stat().st_mtime_ns for name in finished} == finished

    third = watch(tmp_path, "--idle", "1s")
    out, said = third.communicate(timeout=60)
    assert (third.returncode, out) == (0, ""), said


def test_scores_reach_the_service_also_if_it_was_away_and_its_list_is_watched(tmp_path: Path) -> None:
    plan(tmp_path)
    save(tmp_path, 100, 20)
    save(tmp_path, 200, 50)
    with Server(tmp_path / "data") as server:
        server.push("llama", b"step 1 loss 2.0\n", source="rank0.log", attempt=1)
        for step, healthy in ((100, None), (200, None), (300, None)):
            body = {"step": step, "path": str(tmp_path / "ckpt" / f"step_{step:09}"), "attempt": 1, "healthy": healthy}
            assert server.client.post("/v1/jobs/llama/checkpoints", json=body).status_code == 200
        told = ("--watch", "service", "--late", "--job", "llama", "--idle", "3s", "--to")

        process = watch(tmp_path, *told, server.url)
        until_scored(tmp_path, 200)
        server.kill()
        out, said = process.communicate(timeout=90)
        assert process.returncode == 0, said
        assert "the service does not answer" in said
        scored = [json.loads(line)["step"] for line in out.splitlines()]

        server.__enter__()
        process = watch(tmp_path, *told, server.url)
        out, said = process.communicate(timeout=90)
        assert process.returncode == 0, said
        assert sorted(scored + [json.loads(line)["step"] for line in out.splitlines()]) == [100, 200]
        assert "refused" not in said

        found = {one["step"]: one for one in server.get("/v1/jobs/llama/checkpoints")["checkpoints"]}
        assert [(one["data_set"], one["metric"], one["score"]) for one in found[100]["scores"]] == [("a", "acc", 0.8)]
        assert found[200]["scores"][0]["score"] == 0.5
        assert found[200]["scores"][0]["noise"] == pytest.approx(0.035, abs=0.005)
        assert found[300]["scores"] == []
        assert "acc on a is 0.5" in found[200]["why"]
