"""Orders about nodes alone, against real daemons: reboots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.acting.executors.executor import Order, Outcome
from service.acting.executors.slurm import Slurm
from service.acting.executors.slurm_commands import Commands
from tests.support import slurm as real

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]
KEY, OTHER = "0123456789abcdef0123456789abcdef", "f" * 32


@pytest.fixture(scope="module")
def daemons() -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")

    def more(folder: Path) -> list[str]:
        program = folder / "reboot.sh"  # what is rebooted here is a slurmd
        program.write_text(f"#!/bin/sh\necho rebooted >>{folder}/reboots\n")
        program.chmod(0o755)
        return [f"RebootProgram={program}"]

    cluster = real.Slurm(more=more)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def cluster(daemons: real.Slurm) -> real.Slurm:
    daemons.reset()
    (daemons.folder / "reboots").unlink(missing_ok=True)
    return daemons


def carry_out(cluster: real.Slurm, order: Order) -> Outcome:
    return asyncio.run(Slurm([Commands(configuration=cluster.configuration)]).carry_out(order))


def rebooted(cluster: real.Slurm, name: str) -> None:
    """Its program was called, and its slurmd comes back as after a boot."""
    cluster._until(lambda: (cluster.folder / "reboots").exists(), "the reboot")
    cluster.kill(name)
    cluster._start(name, "slurmd", "-D", "-N", name, "-b")
    cluster._until(lambda: "REBOOT" not in cluster.node(name)["State"], "it to come back")


def test_an_isolated_node_is_rebooted_and_stays_isolated_until_it_is_given_back(cluster: real.Slurm) -> None:
    carry_out(cluster, Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79"))
    order = Order(OTHER, "reboot", nodes=("gpu-1",), last_seen=time.time() - 1)  # Slurm tells moments in whole seconds

    first, again = carry_out(cluster, order), carry_out(cluster, order)
    early = carry_out(cluster, Order("e" * 32, "release", nodes=("gpu-1",)))
    rebooted(cluster, "gpu-1")
    after = carry_out(cluster, order)

    assert first.what == "Slurm reboots gpu-1 now, and it stays out of service after that"
    assert again.what == "gpu-1 is being rebooted"
    assert (early.state, early.may_retry, early.what) == ("failed", True, "gpu-1 is just being rebooted")
    assert after.what == "gpu-1 was rebooted since"
    assert (cluster.folder / "reboots").read_text() == "rebooted\n"
    assert cluster.node("gpu-1")["State"] == "DOWN"
    assert cluster.node("gpu-1")["Reason"].startswith(f"diagnose {KEY}: Xid 79")
    assert carry_out(cluster, Order(KEY, "isolate", nodes=("gpu-1",))).what == "gpu-1 was drained by this order"
    assert carry_out(cluster, Order("e" * 32, "release", nodes=("gpu-1",))).what == "resumed gpu-1"
    cluster._until(lambda: cluster.node("gpu-1")["State"] == "IDLE", "it to be idle")


def test_a_doubted_node_is_rebooted_once_no_job_runs_there(cluster: real.Slurm) -> None:
    job = cluster.submit("while [ ! -e end ]; do sleep 0.1; done", "--nodelist=gpu-2")
    cluster.wait(job, "RUNNING")

    outcome = carry_out(cluster, Order(KEY, "reboot", nodes=("gpu-2",), why="two time-outs", last_seen=time.time()))

    assert outcome.what == "Slurm reboots gpu-2 as soon as no job runs there, and it is in service again after that"
    assert "two time-outs" in cluster.node("gpu-2")["Reason"]
    time.sleep(2)
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert not (cluster.folder / "reboots").exists()
    (cluster.folder / "end").touch()
    cluster.wait(job, "COMPLETED")
    rebooted(cluster, "gpu-2")
    cluster._until(lambda: cluster.node("gpu-2")["State"] == "IDLE", "it to be in service")


def test_what_others_have_taken_out_is_not_rebooted(cluster: real.Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-3", "State=DRAIN", "Reason=fan change, open case")
    outcome = carry_out(cluster, Order(KEY, "reboot", nodes=("gpu-3",)))
    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert outcome.what == "gpu-3 was taken out by others: 'fan change, open case'; reboot it by hand"
    assert "REBOOT" not in cluster.node("gpu-3")["State"]


def test_a_node_that_is_being_rebooted_is_not_isolated_meanwhile(cluster: real.Slurm) -> None:
    """slurmctld would put it back into service."""
    carry_out(cluster, Order(KEY, "reboot", nodes=("gpu-2",)))
    outcome = carry_out(cluster, Order(OTHER, "isolate", nodes=("gpu-2",)))
    assert (outcome.state, outcome.may_retry, outcome.isolated) == ("failed", True, ())
    rebooted(cluster, "gpu-2")
    assert carry_out(cluster, Order(OTHER, "isolate", nodes=("gpu-2",))).what == "drained gpu-2"
