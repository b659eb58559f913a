"""Training scripts and the real service: what they report, where they start again; the examples, run as people run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from diagnose.client import Alarm, Resume, Run, Word
from service.store import Store, attempts, training
from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("training") / "data"
    if request.param == "sqlite":
        with Server(data) as running:
            yield running
        return
    with Server(data, "--database", request.getfixturevalue("postgres").database("training")) as running:
        yield running


def spike(server: Server, job: str, attempt: int = 1) -> dict[str, Any]:
    """Push a log whose loss rises at step 120 and stays; the action that the service proposes."""
    lines = [f"step: {n} | loss: {0.5 if n < 120 else 50.0} | lr: 0.01\n" for n in range(160)]
    server.push(job, "".join(lines).encode(), source="rank0.log", attempt=attempt)
    server.end(job, 1, attempt=attempt)
    return proposed(server, job)


def proposed(server: Server, job: str, within_s: float = 60.0) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for action in server.get("/v1/actions", job=job)["actions"]:
            if action["kind"] == "rollback_and_skip":
                found: dict[str, Any] = action
                return found
        time.sleep(0.2)
    raise AssertionError(f"no roll-back was proposed: {server.get(f'/v1/jobs/{job}/report')['diagnosis']}")


def test_a_first_attempt_starts_at_its_beginning(server: Server) -> None:
    assert server.client.get("/v1/jobs/never-seen/resume").status_code == 404
    run = Run("never-seen", url=server.url)
    assert run.resume(timeout_s=20).step is None
    assert run.problem is None, "that is no problem worth a warning"


def test_what_is_reported_is_answered(server: Server) -> None:
    run = Run("told", url=server.url, attempt=1)
    run.checkpoint(20, "/ckpt/20")
    run.checkpoint(40, "/ckpt/40-first")
    run.checkpoint(40, "/ckpt/40", healthy=True)
    run.checkpoint(60, "/ckpt/60", healthy=False)
    run.progress(61, loss=float("nan"))
    assert run.close(20)
    assert run.problem is None
    answer = server.get("/v1/jobs/told/resume")
    assert (answer["step"], answer["path"], answer["skip_batches"]) == (40, "/ckpt/40", [])
    assert {**answer["progress"], "at": None} == {"attempt": 1, "step": 61, "loss": None, "loss_is": "nan", "at": None}
    resume = run.resume(timeout_s=20)
    assert (resume.step, resume.path, resume.known) == (40, "/ckpt/40", True)


def test_a_roll_back_counts_once_it_is_decided_or_asked_for(server: Server) -> None:
    run = Run("spiked", url=server.url, attempt=1)
    for step in (100, 120, 140):
        run.checkpoint(step, f"/ckpt/{step}")
    assert run.close(20)
    action = spike(server, "spiked")
    first, last = action["skip_batches"]
    assert first < 120 <= last
    undecided = server.get("/v1/jobs/spiked/resume")
    assert (undecided["step"], undecided["skip_batches"], undecided["proposed"]) == (140, [], [action["id"]])
    resume = run.resume(proposed=True, timeout_s=20)
    assert (resume.step, resume.path, resume.skip) == (100, "/ckpt/100", ((first, last),))
    # What the second attempt saves beyond the spike is good: it had left those batches out.
    second = Run("spiked", url=server.url, attempt=2)
    second.checkpoint(last + 10, "/ckpt/second")
    assert second.close(20)
    why = f"The newest healthy checkpoint is of step {last + 10}; 2 were set aside."
    assert second.resume(proposed=True, timeout_s=20) == Resume(last + 10, "/ckpt/second", (), why, known=True)


def test_verdicts_are_shown_with_their_reasons(server: Server) -> None:
    run = Run("judged", url=server.url, attempt=1)
    run.checkpoint(20, "/ckpt/20", healthy=True, why="the training went on to step 40 without an alarm")
    run.checkpoint(40, "/ckpt/40", healthy=False, why="__1_0.distcp: it is missing")
    run.progress(41, loss=0.5)
    assert run.close(20)
    assert run.word == Word()
    found = server.get("/v1/jobs/judged/checkpoints")["checkpoints"]
    assert [(one["step"], one["good"], one["why"]) for one in found] == [
        (40, False, "__1_0.distcp: it is missing"),
        (20, True, "the training went on to step 40 without an alarm"),
    ]
    assert "__1_0.distcp: it is missing" in server.client.get("/ui/jobs/judged").text
    assert server.client.get("/v1/jobs/never-seen/checkpoints").status_code == 404


def score(server: Server, job: str, **fields: Any) -> Any:
    body = {"data_set": "arc", "metric": "accuracy", "noise": 0.01, **fields}
    answer = server.client.post(f"/v1/jobs/{job}/checkpoints/scores", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_score_that_fell_makes_a_checkpoint_doubtful(server: Server) -> None:
    run = Run("scored", url=server.url, attempt=1)
    run.checkpoint(100, "/ckpt/100", healthy=True, why="the training went on")
    run.checkpoint(120, "/ckpt/120", healthy=True, why="the training went on")
    run.checkpoint(140, "/ckpt/140")
    assert run.close(20)
    assert score(server, "scored", step=100, score=0.6) == {
        "job": "scored", "attempt": 1, "stored": True, "good": True, "why": "the training went on",
    }  # fmt: skip
    fell = "its accuracy on arc is 0.3 ± 0.01, and was 0.6 ± 0.01 at the checkpoint before"
    assert score(server, "scored", step=120, score=0.3, path="/ckpt/120")["why"] == fell

    found = server.get("/v1/jobs/scored/checkpoints")["checkpoints"]
    assert [(one["step"], one["good"], len(one["scores"])) for one in found] == [(140, None, 0), (120, None, 1), (100, True, 1)]
    assert {**found[1]["scores"][0], "at": None} == {
        "data_set": "arc", "metric": "accuracy", "score": 0.3, "noise": 0.01, "direction": "higher", "at": None,
    }  # fmt: skip
    page = server.client.get("/ui/jobs/scored").text
    assert f"<strong>not good:</strong> {fell}" in page
    assert "accuracy on arc 0.6" in page


def test_what_others_find_of_a_node_reaches_the_verdict_and_the_training(server: Server) -> None:
    server.push("broken", b"step: 1 | loss: 2.0\n", source="rank0.log", attempt=1, rank=0, node="gpu-7")
    run = Run("broken", url=server.url, attempt=1)
    run.checkpoint(100, "/ckpt/100", healthy=True, why="the training went on")
    run.checkpoint(120, "/ckpt/120")
    run.progress(130, loss=2.0)
    assert run.close(20)
    assert run.resume(timeout_s=20).known, "what was pushed is stored now"
    now = datetime.now(UTC).isoformat()
    state = {"time": now, "health": "Unhealthy", "reason": "an uncorrectable error of its memory"}
    told = [{"component": "accelerator-nvidia-ecc", "states": [state]}]
    answer = server.client.post("/v1/nodes/gpu-7/findings/gpud", json=told)
    assert answer.status_code == 201, answer.text

    run.progress(131, loss=2.0)
    run.checkpoint(120, "/ckpt/120", healthy=True, why="the training went on")  # it has not heard it yet
    run.checkpoint(140, "/ckpt/140")
    assert run.close(20)
    assert run.word is not None
    (alarm,) = run.word.alarms
    assert (alarm.kind, alarm.step) == ("hardware", 130)
    assert "an uncorrectable error of its memory" in alarm.why
    found = {one["step"]: one for one in server.get("/v1/jobs/broken/checkpoints")["checkpoints"]}
    assert {step: one["good"] for step, one in found.items()} == {100: True, 120: None, 140: None}
    assert found[120]["why"] == f"before the next checkpoint, at step 130: {alarm.why}"
    assert "an uncorrectable error of its memory" in server.client.get("/ui/jobs/broken").text


def test_a_failing_machine_in_the_log_of_a_running_job_reaches_the_training(server: Server) -> None:
    lines = "".join(f"step: {number} | loss: 2.0 | lr: 0.01\n" for number in range(150))
    broken = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
    server.push("xid", (lines + broken).encode(), source="rank0.log", attempt=1, rank=0, node="gpu-8")
    run = Run("xid", url=server.url, attempt=1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        run.progress(151, loss=2.0)
        assert run.close(20)
        if run.word is not None and run.word.alarms:
            break
        server.push("xid", b"step: 151 | loss: 2.0 | lr: 0.01\n", source="rank1.log", attempt=1, rank=1, node="gpu-9")
        time.sleep(0.5)
    assert run.word is not None
    assert [(one.kind, one.step) for one in run.word.alarms] == [("hardware", 149)]


def test_a_training_hears_of_a_score_that_fell(server: Server) -> None:
    run = Run("fell", url=server.url, attempt=1)
    run.checkpoint(100, "/ckpt/100")
    run.checkpoint(120, "/ckpt/120")
    assert run.close(20)
    score(server, "fell", step=100, score=0.6)
    score(server, "fell", step=120, score=0.3)
    second = Run("fell", url=server.url, attempt=2)
    for at, expected in ((0.3, []), (0.2, [("score", 120, "/ckpt/120")])):  # whoever runs when it comes hears of it
        second.progress(130, loss=1.0)
        assert second.close(20)
        assert second.word is not None
        assert [(one.kind, one.step, one.path) for one in second.word.alarms] == expected
        score(server, "fell", step=120, score=at)
    assert second.word.alarms[0].why.startswith("its accuracy on arc is 0.3")
    score(server, "fell", step=120, score=0.59)
    second.progress(131, loss=1.0)
    assert second.close(20)
    assert second.word == Word()


def test_a_training_hears_how_often_jobs_of_its_size_fail_and_the_page_says_what_the_interval_costs(server: Server) -> None:
    server.push("paced", b"step: 1 | loss: 2.0\n", source="rank0.log", attempt=1, **{"label.gpus": "1024"})
    for number in range(4):
        body = {"step": 100 + number, "path": f"/ckpt/{number}", "attempt": 1, "time": 1e9 + 1800 * number, "cost_s": 1.0}
        assert server.client.post("/v1/jobs/paced/checkpoints", json=body).status_code == 200
    run = Run("paced", url=server.url, attempt=1)
    assert run.resume(timeout_s=20).known, "what was pushed is stored now"
    run.progress(104, loss=2.0)
    assert run.close(20)
    assert run.word is not None
    between = run.word.between_failures_s
    assert between is not None
    pace = server.get("/v1/jobs/paced/checkpoints")["pace"]
    assert (pace["interval_s"], pace["cost_s"], pace["between_failures_s"]) == (1800, 1, between)
    assert pace["best_lost"] < pace["lost"] == pytest.approx(1 / 1801 + 900 / between)
    page = server.client.get("/ui/jobs/paced").text
    assert "A checkpoint every 30 m, and a failure every" in page
    assert "GPU h a week" in page


def test_a_score_finds_its_attempt(server: Server) -> None:
    for attempt in (1, 2):
        run = Run("twice", url=server.url, attempt=attempt)
        run.checkpoint(100, f"/ckpt/{attempt}/100")
        assert run.close(20)
    assert score(server, "twice", step=100, score=0.5)["attempt"] == 2
    assert score(server, "twice", step=100, score=0.5, path="/ckpt/1/100")["attempt"] == 1
    assert score(server, "twice", step=100, score=0.5, attempt=1)["attempt"] == 1
    assert score(server, "twice", step=900, score=0.5)["why"] == "no such checkpoint was reported yet"
    body = {"step": 100, "data_set": "arc", "score": 0.5}
    assert server.client.post("/v1/jobs/nobody/checkpoints/scores", json=body).status_code == 404
    assert server.client.post("/v1/jobs/twice/checkpoints/scores", json={**body, "attempt": 9}).status_code == 404
    assert server.client.post("/v1/jobs/twice/checkpoints/scores", json={**body, "noise": -1}).status_code == 422
    assert server.client.post("/v1/jobs/twice/checkpoints/scores", json={**body, "direction": "up"}).status_code == 422


def test_a_training_hears_of_a_roll_back_that_waits(server: Server) -> None:
    action = spike(server, "hears")
    run = Run("hears", url=server.url, attempt=1)
    run.progress(160, loss=50.0)
    assert run.close(20)
    assert run.word is not None
    assert run.word.alarms == (Alarm(action["skip_batches"][0], action["why"]),)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"step": -1, "path": "x"},
        {"step": 1},
        {"step": 1, "path": ""},
        {"step": 1, "path": "x" * 5000},
        {"step": 1, "path": "a\0b"},
        {"step": 1 << 70, "path": "x"},
        {"step": 1, "path": "\ud800"},
        {"step": 1, "path": "x", "attempt": -1},
        {"step": 1, "path": "x", "time": 1e300},
        [],
        None,
    ],
)
def test_what_is_no_checkpoint_is_refused_with_a_reason(server: Server, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    answer = server.client.post("/v1/jobs/refused/checkpoints", content=json.dumps(body), headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["what"]
    assert server.client.get("/v1/jobs/refused/resume").status_code == 404, "nothing of it was stored"


def test_checkpoints_of_an_attempt_are_bounded(tmp_path: Path) -> None:
    """By the store itself: a thousand requests would say the same and take long."""
    store = Store.in_folder(tmp_path)
    try:
        store.migrate()

        def work(connection: Any) -> list[int]:
            attempt = attempts.open_attempt(connection, "many", 1, {}, 0.0).attempt_id
            for step in range(1005):
                training.reports.checkpoint(connection, attempt, step=step, path=f"/ckpt/{step}", healthy=None, at=0.0)
            return sorted(saved.step for saved in training.checkpoints.of_job(connection, "many"))

        assert store.write(work) == list(range(5, 1005))
    finally:
        store.close()


# The examples


def train(server: Server, name: str, job: str, attempt: int, folder: Path, *words: str) -> list[str]:
    """An example under ``diagnose runner``, as its documentation says; what it printed."""
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "diagnose",
                "runner",
                "--job",
                job,
                "--attempt",
                str(attempt),
                "--state",
                str(folder / "spool"),
            ),
            *("--", sys.executable, str(ROOT / "examples" / name), "--poison", "120:126", "--folder", "ckpt", *words),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DIAGNOSE_URL": server.url,
            "DIAGNOSE_JOB": job,
            "DIAGNOSE_ATTEMPT": str(attempt),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def losses(lines: list[str]) -> dict[int, float]:
    """step -> loss, of both examples' ways to print it."""
    found = {}
    for line in lines:
        if match := re.search(r"step: (\d+) \| loss: (\S+)", line):
            found[int(match[1])] = float(match[2])
        elif match := re.search(r"'loss': (\S+), 'step': (\d+)", line):
            found[int(match[2]) - 1] = float(match[1])  # the Trainer counts a step when it is done
    return found


@pytest.mark.parametrize("name", ["plain_loop.py", "hf_trainer.py"])
def test_an_example_rolls_back_skips_and_recovers(server: Server, name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if name == "hf_trainer.py":
        pytest.importorskip("transformers")
    job = name.removesuffix(".py")
    lines = train(server, name, job, 1, tmp_path, "--steps", "160")
    before = losses(lines)
    level = max(before[step] for step in range(100, 120))
    assert not [step for step in range(121, 160) if before[step] <= 1.5 * level], (
        "the loss went up and stayed there, or was lost"
    )

    action = proposed(server, job)
    first, last = action["skip_batches"]
    report = server.get(f"/v1/jobs/{job}/report", attempt=1)
    assert (report["outcome"], report["diagnosis"]["reason"]) == ("failed", "loss_anomaly")
    assert first < 120
    assert last >= 125

    lines = train(server, name, job, 2, tmp_path, "--steps", "240", "--take-proposed")
    (told,) = [line for line in lines if line.startswith("resuming from checkpoint")]
    assert "at step 100" in told
    skipped = [int(line.split()[-1]) for line in lines if line.startswith("skipping batch")]
    assert skipped == list(range(first, last + 1))
    after = losses(lines)
    trained = [step for step in after if step not in skipped]
    assert (min(trained), max(trained)) == (100, 239)
    assert not set(trained) & set(range(120, 126))
    assert max(after[step] for step in trained) < 1.5 * level, "no spike"
    assert sum(after[step] for step in range(220, 240)) < sum(before[step] for step in range(100, 120)), (
        "and it goes on falling"
    )
    final = server.get(f"/v1/jobs/{job}/resume", proposed="true")
    assert (final["attempt"], final["step"], final["skip_batches"]) == (2, 240, [])
