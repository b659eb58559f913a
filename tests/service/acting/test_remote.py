"""``diagnose runner --act``: real runners, a real service, real programs; killed where it hurts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run
from tests.service.acting.test_dispatch import CANCELLED, SCRIPT
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It decides, and has no executors of its own."""
    folder = tmp_path_factory.mktemp("acting")
    (folder / "policy.yaml").write_text("mode: auto\nbursts: {jobs: 500}\nbudgets: {preempted: {backoff: 0s}}\n")
    with Server(folder / "data", "--authority", "labels", "--policy", str(folder / "policy.yaml")) as running:
        yield running


@contextlib.contextmanager
def runner(server: Server, folder: Path, *words: str, state: str = "state") -> Iterator[subprocess.Popen[str]]:
    with (folder / "runner.log").open("a") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "diagnose", "runner", "--to", server.url, "--act", "--state", str(folder / state), *words],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=out, stderr=out, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)


def preempted(server: Server, *jobs: str) -> None:
    for job in jobs:
        server.push(job, b"step 1 loss 2.0\n" + CANCELLED)
        server.end(job, 143)


def action(server: Server, job: str) -> dict[str, Any]:
    found = server.get("/v1/actions", job=job)["actions"]
    return dict(found[0]) if found else {"state": None}


def until(done: Callable[[], Any], folder: Path, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, (folder / "runner.log").read_text()[-3000:]
        time.sleep(0.05)


def executors(folder: Path, **looks: bool) -> Path:
    """Programs for the jobs of these names."""
    script = folder / "act"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    text = "executors:\n"
    for name, repeatable in looks.items():
        (folder / name).mkdir()
        text += f"  - {{name: {name}, type: command, jobs: {{job: {name}}}, repeatable: {str(repeatable).lower()}, "
        text += f"command: [{script}, {folder / name}]}}\n"
    (folder / "executors.yaml").write_text(text)
    return folder / "executors.yaml"


def asked(folder: Path) -> list[str]:
    return [json.loads(line)["order"]["key"] for line in (folder / "asked").read_text().splitlines() if line]


def test_a_command_carries_an_order_out(server: Server, diagnose: Run, tmp_path: Path) -> None:
    preempted(server, "plain")
    until(lambda: action(server, "plain")["state"] == "approved", tmp_path)
    dry = diagnose(
        "runner", "--to", server.url, "--act", "--once", "--state", "s", "--", "/bin/sh", "-c", "cat > order; echo requeued it"
    )
    assert dry.returncode == 0, dry.stderr
    done = action(server, "plain")
    assert (done["state"], done["result"]) == ("succeeded", {"said": "requeued it"})
    assert done["claimed_by"].startswith("local/runner-")
    assert json.loads((tmp_path / "order").read_text())["order"]["job"] == "plain"


def test_a_dry_run(server: Server, diagnose: Run, tmp_path: Path) -> None:
    preempted(server, "dry")
    until(lambda: action(server, "dry")["state"] == "approved", tmp_path)
    done = diagnose(
        "runner", "--to", server.url, "--act", "--once", "--dry-run", "--state", "s", "--", "/bin/sh", "-c", "touch ran"
    )
    assert done.returncode == 0
    assert action(server, "dry")["result"]["said"] == "dry run: would have: run /bin/sh for restart"
    assert not (tmp_path / "ran").exists()


def test_two_runners_do_each_order_once(server: Server, tmp_path: Path) -> None:
    jobs = [f"both-{number}" for number in range(6)]
    script = 'grep -o \'"key": "[0-9a-f]*"\' >> keys; sleep 0.2; echo done'
    with (
        runner(server, tmp_path, "--", "/bin/sh", "-c", script, state="a"),
        runner(server, tmp_path, "--", "/bin/sh", "-c", script, state="b"),
    ):
        preempted(server, *jobs)
        until(lambda: all(action(server, job)["state"] == "succeeded" for job in jobs), tmp_path)
    keys = (tmp_path / "keys").read_text().split("\n")[:-1]
    assert len(keys) == len(set(keys)) == len(jobs)


def test_a_runner_that_is_killed_while_it_acts(server: Server, tmp_path: Path) -> None:
    names = ("looks", "cannot")
    file = executors(tmp_path, looks=True, cannot=False)
    with runner(server, tmp_path, "--executors", str(file)) as first:
        preempted(server, *names)
        until(lambda: all((tmp_path / name / "begun").exists() for name in names), tmp_path)
        first.kill()
        first.wait()
    for name in names:
        (tmp_path / name / "go").touch()
    time.sleep(0.3)
    assert not any((tmp_path / name / "done").exists() for name in names), "what it had started went on without it"
    with runner(server, tmp_path, "--executors", str(file), state="another"):
        time.sleep(2.5)
        assert {action(server, name)["state"] for name in names} == {"running"}  # not its own
    with runner(server, tmp_path, "--executors", str(file)):
        until(lambda: {action(server, name)["state"] for name in names} == {"succeeded", "failed"}, tmp_path)
    assert (action(server, "looks")["state"], len(asked(tmp_path / "looks"))) == ("succeeded", 2)
    assert (action(server, "cannot")["state"], len(asked(tmp_path / "cannot"))) == ("failed", 1)
    assert "nobody knows whether it was done" in action(server, "cannot")["result"]["said"]


def test_the_service_is_away_while_it_acts_and_hears_of_it_later(server: Server, tmp_path: Path) -> None:
    file = executors(tmp_path, away=False)
    with runner(server, tmp_path, "--executors", str(file)) as process:
        preempted(server, "away")
        until(lambda: (tmp_path / "away" / "begun").exists(), tmp_path)
        server.kill()
        (tmp_path / "away" / "go").touch()
        until(lambda: (tmp_path / "away" / "done").exists(), tmp_path)
        server.start()
        until(lambda: action(server, "away")["state"] == "succeeded", tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert len(asked(tmp_path / "away")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([], "exactly one way to carry out actions", id="nobody"),
        pytest.param(["x.log", "--", "/bin/true"], "exactly one way to carry out actions", id="logs-too"),
        pytest.param(["--executors", "x.yaml", "--", "/bin/true"], "exactly one way to carry out actions", id="both"),
        pytest.param(["--executors", "none.yaml"], "none.yaml: cannot be read", id="no-file"),
    ],
)
def test_wrong_calls(diagnose: Run, words: list[str], said: str) -> None:
    done = diagnose("runner", "--to", "http://127.0.0.1:9", "--act", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_one_state_is_one_runners(server: Server, diagnose: Run, tmp_path: Path) -> None:
    with runner(server, tmp_path, "--", "/bin/true"):
        until(lambda: "carries out orders" in (tmp_path / "runner.log").read_text(), tmp_path)
        done = diagnose("runner", "--to", server.url, "--act", "--state", "state", "--", "/bin/true")
    assert done.returncode == 2
    assert "another runner uses this folder" in done.stderr


def test_a_token_that_may_not_operate(server: Server, diagnose: Run) -> None:
    made = diagnose("tokens", "create", "shipper", "--role", "ingest", "--data", str(server.data))
    secret = next(word for word in made.stdout.split() if word.startswith("dgn_"))
    deadline = time.monotonic() + 20
    while server.client.get("/v1/jobs").status_code != 401 and time.monotonic() < deadline:
        time.sleep(0.2)  # it reads its tokens now and then
    done = diagnose("runner", "--to", server.url, "--act", "--once", "--state", "s", "--", "/bin/true", DIAGNOSE_TOKEN=secret)
    assert done.returncode == 2
    assert "use a token that has the right to operate" in done.stderr


def test_a_token_that_is_renewed_while_it_acts(tmp_path: Path, diagnose: Run) -> None:
    data = tmp_path / "data"

    def made(role: str) -> str:
        return diagnose("tokens", "create", f"{role}{time.time_ns()}", "--role", role, "--data", str(data)).stdout.strip()

    secret, file = made("admin"), tmp_path / "token"
    file.write_text(made("operate"))
    (tmp_path / "policy.yaml").write_text("mode: auto\nbudgets: {preempted: {backoff: 0s}}\n")
    with Server(data, "--authority", "labels", "--policy", str(tmp_path / "policy.yaml")) as server:
        server.client.headers["authorization"] = f"Bearer {secret}"
        with runner(server, tmp_path, "--token-file", str(file), "--", "/bin/true"):
            until(lambda: "carries out orders" in (tmp_path / "runner.log").read_text(), tmp_path)
            (old,) = [
                line.split("\t")[0]
                for line in diagnose("tokens", "list", "--data", str(data)).stdout.splitlines()
                if "operate" in line
            ]
            diagnose("tokens", "revoke", old, "--data", str(data))
            file.write_text(made("operate"))
            preempted(server, "later")
            until(lambda: action(server, "later")["state"] == "succeeded", tmp_path)
