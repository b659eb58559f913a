"""A malicious ingest token against a real Slurm, in mode auto: it touches no job of others, and takes no node out of service.

Each attack is what somebody can do who may send logs and has read the documents. What a token may be used for is tested too: a
service that does nothing at all would pass the rest.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT
from tests.support import slurm as real
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
NODES = tuple(f"gpu-{number}" for number in range(1, 7))
POLICY = """\
mode: auto
bursts: {jobs: 500}                # or what is done to one job would wait for the others
limits: {job_cool_down: 0s}
budgets: {gpu_fell_off_bus: {backoff: 0s}, cuda_error: {backoff: 0s}, native_crash: {backoff: 0s}, preempted: {backoff: 0s}}
"""
XID = "Nov 21 10:00:01 {node} kernel: [812345.670] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
STEPS = "".join(f"step {step}/1000 | loss 2.{step} | grad_norm 0.5\n" for step in range(1, 20))
SOFT = "RuntimeError: CUDA error: unspecified launch failure\n"


@dataclass
class World:
    """A cluster where somebody else's job runs, a service that acts on it, and an administrator who looks."""

    cluster: real.Slurm
    service: Server
    victim: str
    """a job of root's, on gpu-1"""
    mine: str
    """a job of the attacker's own, on gpu-2"""

    def token(self, name: str, *words: str) -> Sender:
        made = subprocess.run(
            [sys.executable, "-m", "diagnose", "tokens", "create", name, "--data", str(self.service.data), *words],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        sender = Sender(self, httpx.Client(base_url=self.service.url, timeout=60))
        sender.client.headers["Authorization"] = f"Bearer {made.stdout.strip()}"
        until(lambda: sender.client.get("/v1/jobs/x/sources").status_code != 401, "the token to be known")
        return sender

    def settled(self, *jobs: str) -> list[dict[str, Any]]:
        """All actions, once these jobs were decided about and nothing is under way any more."""
        for job in jobs:
            path = f"/v1/jobs/{job}/decision"
            until(lambda path=path: self.service.client.get(path).status_code == 200, f"a decision on {job}")
        time.sleep(2.5)  # a round of the dispatcher, and of whoever looks again at what was put off

        def quiet() -> bool:
            return not any(one["state"] in ("approved", "dispatched", "running") for one in self.actions())

        until(quiet, "the orders to end")
        return self.actions()

    def actions(self) -> list[dict[str, Any]]:
        return list(self.service.get("/v1/actions", limit=1000)["actions"])

    def drained(self) -> list[str]:
        return [node for node in self.cluster.nodes if "DRAIN" in self.cluster.node(node)["State"]]

    def untouched(self) -> None:
        """Nobody's job and no node has noticed anything."""
        assert self.drained() == [], self.actions()
        for job in (self.victim, self.mine):
            assert (self.cluster.job(job)["JobState"], self.cluster.job(job)["Restarts"]) == ("RUNNING", "0"), self.actions()


@dataclass
class Sender:
    """Who holds a token."""

    world: World
    client: httpx.Client

    def push(self, job: str, text: str, **params: str) -> int:
        return self.client.post(f"/v1/jobs/{job}/logs", params=params, content=text.encode()).status_code

    def end(self, job: str, exit_code: int = 1) -> int:
        return self.client.post(f"/v1/jobs/{job}/end", json={"exit_code": exit_code}).status_code


def until(done: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := done()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def daemons() -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    cluster = real.Slurm(NODES)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def world(daemons: real.Slurm, tmp_path: Path) -> Iterator[World]:
    daemons.reset()
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "slurm.jwt").write_text(daemons.token())
    (tmp_path / "executors.yaml").write_text(
        "executors:\n"
        "  - name: test\n"
        "    type: slurm\n"
        f"    slurmrestd: {{url: '{daemons.url}', user: {daemons.user}, token_file: slurm.jwt}}\n"
        f"    commands: {{configuration: {daemons.configuration}}}\n"
    )
    words = (
        "--authority",
        "confirmed",
        "--policy",
        str(tmp_path / "policy.yaml"),
        "--executors",
        str(tmp_path / "executors.yaml"),
    )
    with Server(tmp_path / "data", *words, SLURM_CONF=str(daemons.configuration)) as service:
        victim = daemons.submit("sleep 300", "--nodelist=gpu-1")
        mine = daemons.submit("sleep 300", "--nodelist=gpu-2", "--uid=nobody", "-o", "/dev/null", "-D", "/")
        for job in (victim, mine):
            daemons.wait(job, "RUNNING")
        found = World(daemons, service, victim, mine)
        service.client.headers["Authorization"] = found.token("admin", "--role", "admin").client.headers["Authorization"]
        until(lambda: httpx.get(f"{service.url}/v1/jobs").status_code == 401, "the service to be closed")
        yield found
    daemons.run("scancel", victim, mine)  # reset ends the jobs of its own user only


def test_a_label_that_names_anothers_job(world: World) -> None:
    intern = world.token("intern", "--role", "ingest")
    for node in ("gpu-1", "gpu-3"):
        label = {"label.slurm.job_id": world.victim}
        assert intern.push(f"run-{node}", STEPS + XID.format(node=node), node=node, source="kern.log", **label) == 200
        assert intern.end(f"run-{node}") == 200
    world.settled("run-gpu-1", "run-gpu-3")
    world.untouched()


def test_a_job_that_has_anothers_number_for_a_name(world: World) -> None:
    intern = world.token("intern", "--role", "ingest")
    assert intern.push(world.victim, STEPS + XID.format(node="gpu-1"), node="gpu-1") == 200
    intern.end(world.victim)
    world.settled(world.victim)
    world.untouched()


def test_nodes_that_do_not_exist_make_no_room_for_isolations(world: World) -> None:
    intern = world.token("intern", "--role", "ingest")
    for number in range(100):
        assert intern.push("many", "hello\n", node=f"made-up-{number}", source=f"s{number}") == 200
    until(lambda: len(world.service.get("/v1/nodes", limit=200)["nodes"]) >= 100, "the nodes to be known")
    for node in ("gpu-3", "gpu-4", "gpu-5"):
        label = {"label.slurm.job_id": world.mine}
        assert intern.push(f"run-{node}", STEPS + XID.format(node=node), node=node, source="kern.log", **label) == 200
        assert intern.end(f"run-{node}") == 200
    world.settled("run-gpu-3", "run-gpu-4", "run-gpu-5")
    world.untouched()


def test_a_token_for_one_user_and_the_job_of_another(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--user", "nobody", "--node", "*")
    assert theirs.push(world.victim, STEPS + SOFT, node="gpu-1") == 200
    assert theirs.end(world.victim) == 200
    (action,) = world.settled(world.victim)
    assert action["state"] == "proposed", action
    world.untouched()


def test_a_line_in_the_name_of_a_kernel_is_refused(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--user", "nobody")
    assert theirs.push(world.mine, XID.format(node="gpu-2"), source="node:gpu-2/kern.log") == 403
    kernel = world.token("gpu-3", "--role", "node", "--node", "gpu-3")
    assert kernel.push(world.mine, XID.format(node="gpu-2"), source="node:gpu-2/kern.log") == 403
    assert kernel.push(world.mine, XID.format(node="gpu-2"), source="node:gpu-3/kern.log", node="gpu-2") == 403


def test_a_token_for_a_user_gets_the_restart_of_the_users_job(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--user", "nobody")
    assert theirs.push(world.mine, STEPS + SOFT, node="gpu-2") == 200
    assert theirs.end(world.mine) == 200
    until(lambda: world.cluster.job(world.mine)["Restarts"] == "1", "the restart")
    world.settled(world.mine)
    assert world.drained() == []
    assert (world.cluster.job(world.victim)["JobState"], world.cluster.job(world.victim)["Restarts"]) == ("RUNNING", "0")


def test_a_nodes_own_kernel_takes_it_out_of_service(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--user", "nobody")
    kernel = world.token("gpu-2", "--role", "node", "--node", "gpu-2")
    assert theirs.push(world.mine, STEPS, node="gpu-2") == 200
    assert kernel.push(world.mine, XID.format(node="gpu-2"), source="node:gpu-2/kern.log") == 200
    assert theirs.end(world.mine) == 200
    world.settled(world.mine)
    until(lambda: world.drained() == ["gpu-2"], "the node to be drained")
