"""Orders about nodes alone, against real daemons: reboots, and spares for isolated nodes."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.acting.executors.executor import Order, Outcome
from service.acting.executors.slurm import Slurm
from service.acting.executors.slurm_commands import Commands
from service.acting.executors.slurm_spares import Spares
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


@pytest.mark.parametrize("drained", [False, True], ids=["ours", "a-person-drains-it-meanwhile"])
def test_a_doubted_node_is_rebooted_once_no_job_runs_there_and_does_not_come_back_by_itself(
    cluster: real.Slurm, drained: bool
) -> None:
    job = cluster.submit("while [ ! -e end ]; do sleep 0.1; done", "--nodelist=gpu-2")
    cluster.wait(job, "RUNNING")

    outcome = carry_out(cluster, Order(KEY, "reboot", nodes=("gpu-2",), why="two time-outs", last_seen=time.time()))

    assert outcome.what == "Slurm reboots gpu-2 as soon as no job runs there, and it stays out of service after that"
    assert outcome.isolated == ("gpu-2",)
    assert "two time-outs" in cluster.node("gpu-2")["Reason"]
    time.sleep(2)
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert not (cluster.folder / "reboots").exists()
    if drained:
        cluster.run("scontrol", "update", "NodeName=gpu-2", "State=DRAIN", "Reason=fan change, open case")
    (cluster.folder / "end").touch()
    cluster.wait(job, "COMPLETED")
    rebooted(cluster, "gpu-2")
    assert cluster.node("gpu-2")["State"].startswith("DOWN")
    carry_out(cluster, Order("e" * 32, "release", nodes=("gpu-2",)))
    assert cluster.node("gpu-2")["State"].startswith("DOWN") == drained
    (cluster.folder / "end").unlink()
    cluster.run("scontrol", "update", "NodeName=gpu-2", "State=RESUME", check=False)
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
    after = carry_out(cluster, Order(OTHER, "isolate", nodes=("gpu-2",)))
    assert after.what.startswith(f"gpu-2 was drained before: 'diagnose {KEY}")
    cluster.run("scontrol", "update", "NodeName=gpu-2", "State=RESUME")


class Late(Commands):
    """A person drains the node while Slurm is asked whether it can reboot."""

    async def can_reboot(self) -> None:
        await super().can_reboot()
        await self.drain("gpu-3", "fan change, open case")


def test_what_a_person_drains_meanwhile_is_not_rebooted(cluster: real.Slurm) -> None:
    by = Slurm([Late(configuration=cluster.configuration)])
    outcome = asyncio.run(by.carry_out(Order(KEY, "reboot", nodes=("gpu-3",))))
    assert outcome.what == "gpu-3 was taken out by others: 'fan change, open case'; reboot it by hand"
    assert (cluster.node("gpu-3")["State"], cluster.node("gpu-3")["Reason"]) == ("IDLE+DRAIN", "fan change, open case")


@pytest.fixture
def reservation(cluster: real.Slurm) -> Iterator[real.Slurm]:
    """gpu-2 and gpu-3 are spares."""
    how = ["StartTime=now", "Duration=UNLIMITED", "Users=root", "Nodes=gpu-2,gpu-3"]
    cluster.run("scontrol", "create", "reservation", "ReservationName=spares", *how)
    yield cluster
    cluster.run("scontrol", "delete", "ReservationName=spares")
    cluster.run("scontrol", "update", "NodeName=gpu-1", "Comment=")


def with_spares(cluster: real.Slurm, folder: Path | None = None, name: str = "spares") -> Slurm:
    commands = Commands(folder=folder, configuration=cluster.configuration)
    return Slurm([commands], Spares(name, commands))


def spares(cluster: real.Slurm) -> str:
    return cluster.run("scontrol", "-o", "show", "reservation", "spares").partition(" Nodes=")[2].partition(" ")[0]


def until_a_file(name: str) -> str:
    return f"while [ ! -e {name} ]; do sleep 0.1; done"


def test_a_job_that_waits_gets_the_spare_of_an_isolated_node_and_it_goes_back_after_the_release(
    reservation: real.Slurm,
) -> None:
    cluster, by = reservation, with_spares(reservation)
    cluster.run("scontrol", "update", "NodeName=gpu-1", "Comment=ask Ann; rack 7")
    here = cluster.submit(until_a_file("end-here"), "--nodelist=gpu-1")
    cluster.wait(here, "RUNNING")
    waits = cluster.submit(until_a_file("end-there"))
    order, release = Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79"), Order(OTHER, "release", nodes=("gpu-1",))
    time.sleep(2)  # the scheduler looks each second
    assert cluster.job(waits)["JobState"] == "PENDING"

    isolated, again = asyncio.run(by.carry_out(order)), asyncio.run(with_spares(cluster).carry_out(order))
    cluster.wait(waits, "RUNNING")

    assert isolated.what == "drained gpu-1; took gpu-2 out of spares for it"
    assert again.what == "gpu-1 was drained by this order; gpu-2 stands in for gpu-1 already"
    assert (spares(cluster), cluster.job(waits)["NodeList"]) == ("gpu-3", "gpu-2")
    assert cluster.job(here)["JobState"] == "RUNNING"

    in_use = asyncio.run(by.carry_out(release))

    assert (in_use.state, in_use.may_retry) == ("succeeded", True)
    assert "gpu-2 is not back in spares yet" in in_use.what
    assert "nodes are busy" in in_use.what
    assert (spares(cluster), cluster.job(waits)["JobState"]) == ("gpu-3", "RUNNING")
    for name, job in (("end-here", here), ("end-there", waits)):
        (cluster.folder / name).touch()
        cluster.wait(job, "COMPLETED")
    cluster._until(lambda: cluster.node("gpu-2")["State"] == "IDLE", "the spare to be idle")

    back = asyncio.run(with_spares(cluster).carry_out(release))

    assert (back.what, back.may_retry) == ("gpu-1 is in service already; handed gpu-2 back to spares", False)
    assert spares(cluster) == "gpu-[2-3]"
    assert cluster.run("scontrol", "show", "node", "gpu-1").strip().endswith("Comment=ask Ann; rack 7")


def test_a_reservation_that_ignores_jobs_has_its_last_spare_back_at_once_and_the_job_goes_on(reservation: real.Slurm) -> None:
    cluster, by = reservation, with_spares(reservation)
    cluster.run("scontrol", "update", "ReservationName=spares", "Nodes=gpu-3", "Flags+=IGNORE_JOBS")
    cluster.run("scontrol", "update", "NodeName=gpu-2", "State=DRAIN", "Reason=fan change")

    isolated = asyncio.run(by.carry_out(Order(KEY, "isolate", nodes=("gpu-1",), why="Xid 79")))
    between = spares(cluster)
    job = cluster.submit(until_a_file("end-spare"))
    ran = cluster.wait(job, "RUNNING")["NodeList"]
    released = asyncio.run(by.carry_out(Order(OTHER, "release", nodes=("gpu-1",))))

    assert isolated.what == "drained gpu-1; took gpu-3 out of spares for it"
    assert (between, ran) == ("gpu-1", "gpu-3")
    assert (released.what, released.may_retry) == ("resumed gpu-1; handed gpu-3 back to spares", False)
    assert spares(cluster) == "gpu-3"
    (cluster.folder / "end-spare").touch()
    cluster.wait(job, "COMPLETED")


def test_check_finds_the_reservation_and_changes_none(reservation: real.Slurm) -> None:
    before = reservation.run("scontrol", "-o", "show", "reservation")

    assert asyncio.run(with_spares(reservation).check()) == []
    (problem,) = asyncio.run(with_spares(reservation, name="other").check())

    assert "knows no reservation other" in problem
    assert reservation.run("scontrol", "-o", "show", "reservation") == before


def test_without_any_reservation_the_node_is_isolated_all_the_same(cluster: real.Slurm) -> None:
    outcome = asyncio.run(with_spares(cluster).carry_out(Order(KEY, "isolate", nodes=("gpu-1",))))
    assert (outcome.state, outcome.what) == (
        "succeeded",
        "drained gpu-1; no spare for gpu-1: Slurm knows no reservation spares",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_who_may_change_no_reservation_is_told_beforehand(reservation: real.Slurm, tmp_path: Path) -> None:
    where = shutil.which("scontrol", path=reservation.environment["PATH"])
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {where} "$@"\n')
    program.chmod(0o755)

    problems = asyncio.run(Spares("spares", Commands(folder=tmp_path, configuration=reservation.configuration)).check())

    assert ["Invalid user" in one and "adminlevel=Administrator" in one for one in problems] == [True]
