"""What Slurm alone knows, through the samples of ``deploy/slurm`` to a decision: memory that ran out, a node that failed."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import slurm as real
from tests.support.commands import Commands
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
POLICY = "mode: auto\nlimits: {job_cool_down: 0s}\nbudgets: {node_failure: {backoff: 0s}}\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Iterator[Server]:
    """One that asks Slurm, where it finds its file later."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "executors.yaml").write_text(
        f"executors: [{{name: test, type: slurm, nodes: ['*'], commands: {{configuration: {folder}/slurm.conf}}}}]\n"
    )

    def token(name: str, *words: str) -> str:
        made = ["tokens", "create", name, *words, "--data", str(folder / "data")]
        return commands.run(made, cwd=folder, stdin=None, environment={}).stdout.split()[0]

    admin = token("admin", "--role", "admin")
    (folder / "token").write_text(token("all", "--role", "ingest", "--user", "*"))
    words = "--authority", "confirmed", "--policy", str(folder / "policy.yaml"), "--executors", str(folder / "executors.yaml")
    with Server(folder / "data", *words) as service:
        service.client.headers["Authorization"] = f"Bearer {admin}"
        yield service


@contextlib.contextmanager
def running(service: Server, *lines: str, nodes: tuple[str, ...] = real.NODES, **how: Any) -> Iterator[real.Slurm]:
    """A cluster with the samples, which the service acts on."""
    if absent := real.missing(accounting=how.get("accounting", False)):
        pytest.skip(f"not installed: {', '.join(absent)}")
    folder = service.data.parent
    more = real.samples(service.url, folder / "token")
    cluster = real.Slurm(nodes, lambda where: [*more(where), *lines], **how)
    (folder / "slurm.conf").unlink(missing_ok=True)
    (folder / "slurm.conf").symlink_to(cluster.configuration)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def until(done: Callable[[], Any], service: Server, within_s: float = 90.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := done()):
        assert time.monotonic() < deadline, service.log[-4000:]
        time.sleep(0.1)
    return found


def decided(service: Server, job: str, reason: str) -> dict[str, Any] | None:
    """The decision about the first attempt, once it is about this."""
    answer = service.client.get(f"/v1/jobs/{job}/decision", params={"attempt": 1})
    return found if answer.status_code == 200 and (found := dict(answer.json()))["reason"] == reason else None


STEPS = """\
import os, time
for step in range(20):
    print(f"step {step}/1000 | loss 2.{step} | grad_norm 0.5", flush=True)
if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    time.sleep(600)
print("training finished")
"""


def train(cluster: real.Slurm, service: Server, monkeypatch: pytest.MonkeyPatch, script: str, *words: str) -> str:
    home = cluster.folder / "home"
    home.mkdir(exist_ok=True)
    shutil.copy(service.data.parent / "token", home / ".diagnose-token")
    (cluster.folder / "train.py").write_text(script)
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    for name, value in {"HOME": str(home), "DIAGNOSE_URL": service.url, "PATH": path}.items():
        monkeypatch.setitem(cluster.environment, name, value)
    size = "--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=0"  # this cluster is small, and has no GPUs
    sample = str(ROOT / "deploy" / "slurm" / "train.sbatch")
    return cluster.run("sbatch", "--parsable", *size, f"--output={cluster.folder}/%j.out", *words, sample).strip()


def test_a_node_that_dies(service: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld takes its job to another node by itself. The node is named by its word, and by nothing that a log says."""
    with running(service, "SlurmdTimeout=5", accounting=True) as cluster:
        job = train(cluster, service, monkeypatch, STEPS)
        until(lambda: service.client.get(f"/v1/jobs/{job}").json().get("attempts", [{}])[0].get("lines_in", 0) >= 20, service)
        assert cluster.job(job)["NodeList"] == "gpu-1"
        cluster.kill_node("gpu-1", job)

        decision = until(lambda: decided(service, job, "node_failure"), service, 120)
        again = cluster.wait(job, "COMPLETED", seconds=60)
        assert (again["NodeList"], again["Restarts"]) == ("gpu-2", "1")
        assert decision["check"] == ["gpu-1"]
        assert "Slurm says NODE_FAIL; gpu-1 is down" in str(decision["reasons"])
        told = until(lambda: (found := service.get(f"/v1/jobs/{job}"))["state"] == "ended" and found, service)
        assert [(one["number"], one["outcome"], one["reason"]) for one in told["attempts"]] == [
            (2, "healthy", "healthy"),
            (1, "failed", "node_failure"),
        ]


GROWS = """\
for step in range(20):
    print(f"step {step}/1000 | loss 2.{step} | grad_norm 0.5", flush=True)
held = [bytearray(50 << 20) for _ in range(20)]
"""


@pytest.mark.skipif(
    not os.access(real.MEMORY, os.W_OK), reason="there is no memory controller of cgroups (version 1) to write to"
)
def test_a_job_that_needs_more_memory_than_it_asked_for(service: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm says OUT_OF_MEMORY only where the batch script itself was killed. Of a step of srun the log tells."""
    with running(service, "FirstJobId=1000", memory_mb=2000, nodes=("small-1",)) as cluster:  # its jobs are no others'
        of_step = train(cluster, service, monkeypatch, GROWS, "--mem=400M")
        of_script = cluster.submit(f"exec {sys.executable} -c '[bytearray(50 << 20) for _ in range(20)]'", "--mem=200M")
        assert cluster.wait(of_step, "FAILED", "COMPLETED", "OUT_OF_MEMORY", seconds=90)["JobState"] == "FAILED"
        cluster.wait(of_script, "OUT_OF_MEMORY", seconds=60)

        for job in (of_step, of_script):
            decision = until(lambda job=job: decided(service, job, "host_out_of_memory"), service, 60)  # type: ignore[misc]
            assert (decision["action"]["kind"], decision["tell"]) == ("fix_config", "owner"), decision
        assert "Slurm says OUT_OF_MEMORY" in service.get(f"/v1/jobs/{of_script}")["attempts"][0]["summary"]
        assert [one for one in service.get("/v1/actions", job=of_step)["actions"] if one["state"] != "rejected"] == []
