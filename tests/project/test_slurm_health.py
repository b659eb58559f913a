"""``deploy/slurm/healthcheck.sh``: as HealthCheckProgram of real Slurm daemons, and when something is in its way.

No kernel can be made to say that a GPU is gone: a file with records as ``/dev/kmsg`` has them stands in for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.service.intake.test_streams import token
from tests.support import slurm as real
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
SCRIPT = ROOT / "deploy" / "slurm" / "healthcheck.sh"
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OF_A_PROGRAM = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, MMU Fault"
RECORDS = f"""\
6,1,1000,-;Linux version 6.17
3,2,2000,-;NVRM: Xid (PCI:0000:3b:00): 74, pid=4711, name=python, NVLink: unexpected error on link 3
 SUBSYSTEM=pci
 DEVICE=+pci:0000:3b:00.0
3,3,3000,-;{OF_A_PROGRAM}
3,4,4000,-;overlayfs: failed to resolve '/home/kim/\\x0aNVRM: Xid (PCI:0000:3b:00): 48, x': -2
12,5,5000,-;NVRM: Xid (PCI:0000:3b:00): 95, what a program has written itself
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("health")
    admin = token(folder / "data", "admin", "--role", "admin")
    (folder / "token").write_text(token(folder / "data", "nodes", "--role", "node", "--node", "gpu-*"))
    with Server(folder / "data") as running:
        running.client.headers["Authorization"] = f"Bearer {admin}"
        yield running


def found(server: Server, node: str) -> list[tuple[str, bool]]:
    """What is known of a node, and whether it is over, the latest last."""
    rows = server.client.get(f"{server.url}/v1/nodes/{node}").json().get("findings", [])
    return [(one["name"], one["ended"] is not None) for one in sorted(rows, key=lambda row: float(row["at"]))]


def until(done: Callable[[], Any], what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def test_a_node_tells_of_itself_and_stays_in_service(server: Server) -> None:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    own = server.data.parent / "token"

    def lines(folder: Path) -> list[str]:
        (folder / "kmsg-gpu-1").write_text(RECORDS)
        (folder / "kmsg-gpu-2").write_text("6,1,1000,-;Linux version 6.17\n")
        (folder / "diagnose.env").write_text(
            f"DIAGNOSE_TOKEN_FILE={own}\nDIAGNOSE_KMSG={folder}/kmsg-$SLURMD_NODENAME\n"
            f"DIAGNOSE_HEALTH_COMMAND='! cat {folder}/broken-'$SLURMD_NODENAME\n"
        )
        return [
            *real.samples(server.url, own)(folder),
            f"HealthCheckProgram={folder}/healthcheck.sh",
            "HealthCheckInterval=1",
            "HealthCheckNodeState=ANY",
        ]

    cluster = real.Slurm(("gpu-1", "gpu-2"), lines)
    try:
        cluster.start()
        said = cluster.folder / "kmsg-gpu-1"
        until(lambda: found(server, "gpu-1") == [("Xid74", True)], lambda: found(server, "gpu-1"))
        with said.open("a") as more:
            more.write(f"3,6,6000,-;{LOST}\n")
        until(lambda: [name for name, _ in found(server, "gpu-1")] == ["Xid74", "Xid79"], lambda: found(server, "gpu-1"))
        (cluster.folder / "broken-gpu-2").write_text("8 GPUs are asked for\n7 of 8 GPUs\n")
        until(lambda: found(server, "gpu-2") == [("HealthCheck", False)], lambda: found(server, "gpu-2"))
        (row,) = server.get("/v1/nodes/gpu-2")["findings"]
        assert (row["source"], row["said"]) == ("health-check", "exit status 1: 7 of 8 GPUs")
        (cluster.folder / "broken-gpu-2").unlink()
        until(lambda: found(server, "gpu-2") == [("HealthCheck", True)], lambda: found(server, "gpu-2"))
        assert [name for name, _ in found(server, "gpu-1")] == ["Xid74", "Xid79"], "each is told once"
        assert {cluster.node(name)["State"] for name in cluster.nodes} == {"IDLE"}
        assert "health_check failed" not in (cluster.folder / "gpu-1.log").read_text()
    finally:
        cluster.stop()


def ran(folder: Path, server: Server, node: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "SLURMD_NODENAME": node,
        "DIAGNOSE_URL": server.url,
        "DIAGNOSE_TOKEN_FILE": str(server.data.parent / "token"),
        "DIAGNOSE_RUN": str(folder / "run"),
        "DIAGNOSE_KMSG": str(folder / "kmsg"),
        "BASH_FUNC_logger%%": "() { echo \"$@\"; }",
    }  # fmt: skip
    return subprocess.run([str(SCRIPT)], env=environment | more, capture_output=True, text=True, timeout=60)


def test_what_could_not_be_told_is_told_the_next_time(server: Server, tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text(f"3,7,7000,-;{LOST}\n")
    health = {"DIAGNOSE_HEALTH_COMMAND": "echo '\"7\" of\\8'; exit 3"}
    away = ran(tmp_path, server, "gpu-5", DIAGNOSE_URL="http://127.0.0.1:9", **health)
    assert (away.returncode, away.stdout.count("could not tell")) == (0, 2)
    for _ in range(2):
        done = ran(tmp_path, server, "gpu-5", **health)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert found(server, "gpu-5") == [("Xid79", True), ("HealthCheck", False)]
    ran(tmp_path, server, "gpu-5")
    assert found(server, "gpu-5") == [("Xid79", True), ("HealthCheck", True)], "a site that has no check any more"


def test_after_a_start_of_the_machine_numbers_begin_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text(f"3,7,7000,-;{LOST}\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "health-gpu-6.kernel").write_text("another-boot 9000 1700000000\n")
    assert ran(tmp_path, server, "gpu-6").returncode == 0
    assert found(server, "gpu-6") == [("Xid79", True)]


def test_a_check_that_cannot_be_ended_holds_up_nothing_and_is_not_started_twice(server: Server, tmp_path: Path) -> None:
    """Whoever would end it is stopped, as if it hung in the driver itself."""
    (tmp_path / "kmsg").write_text("")
    hangs = {"DIAGNOSE_HEALTH_COMMAND": f"echo $PPID >>{tmp_path}/pids; kill -STOP $PPID; exec sleep 300"}
    try:
        assert ran(tmp_path, server, "gpu-7", DIAGNOSE_HEALTH_SECONDS="1", **hangs).returncode == 0
        assert found(server, "gpu-7") == [("HealthCheck", False)]
        (tmp_path / "kmsg").write_text(f"3,7,7000,-;{LOST}\n")
        assert ran(tmp_path, server, "gpu-7", DIAGNOSE_HEALTH_SECONDS="1", **hangs).returncode == 0
        assert {name for name, _ in found(server, "gpu-7")} == {"HealthCheck", "Xid79"}
        assert len((tmp_path / "pids").read_text().split()) == 1
    finally:
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


@pytest.mark.parametrize("what", ["no-folder", "no-kernel", "hostile"])
def test_it_never_fails(server: Server, tmp_path: Path, what: str) -> None:
    if what == "no-folder":
        (tmp_path / "run").write_text("")
    if what == "hostile":
        (tmp_path / "kmsg").write_bytes(b"\xff\x00,;\n3,x,y,-;NVRM: \xff\n3,99,1,-;" + b"NVRM: " * 5000 + b"\n")
    more = {"DIAGNOSE_HEALTH_COMMAND": "printf '\\377\\000\\033[31m'; exit 1"} if what == "hostile" else {}
    done = ran(tmp_path, server, "gpu-8", **more)
    assert done.returncode == 0
    assert ("cannot read" in done.stdout) == (what == "no-kernel")
    assert "could not tell" not in done.stdout
