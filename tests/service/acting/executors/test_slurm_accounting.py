"""What only the accounting knows, from a real slurmdbd: who cancelled a job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from service.acting.executors.claim import Confirmed
from service.acting.executors.executor import Order
from service.acting.executors.http import Server
from service.acting.executors.slurm import Slurm
from service.acting.executors.slurm_commands import Commands
from service.acting.executors.slurm_rest import Rest
from tests.support import slurm as real

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else"),
]
NOBODY = 65534


@pytest.fixture(scope="module")
def cluster() -> Iterator[real.Slurm]:
    if absent := real.missing(accounting=True):
        pytest.skip(f"not installed: {', '.join(absent)}")
    cluster = real.Slurm(accounting=True)
    try:
        cluster.folder.chmod(0o777)  # nobody's jobs write there
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(params=["commands", "slurmrestd"])
def by(cluster: real.Slurm, request: pytest.FixtureRequest) -> Slurm:
    if request.param == "commands":
        return Slurm([Commands(configuration=cluster.configuration)])
    rest = Rest(Server(cluster.url, timeout_s=10), user=cluster.user, token_env="T", environment={"T": cluster.token()})
    return Slurm([rest])


def submitted(cluster: real.Slurm, *words: str) -> str:
    return cluster.submit("echo begun; exec sleep 60", f"--uid={NOBODY}", *words)


def cancelled(cluster: real.Slurm, number: int) -> str:
    """A job of nobody's, which this user cancels."""
    job = submitted(cluster)
    cluster.wait_for(job, "begun")  # what is cancelled while it starts takes seconds to end
    cluster.as_user(number, "scancel", job)
    cluster.wait(job, "CANCELLED")
    return job


def asked(by: Slurm, job: str) -> Confirmed:
    found = asyncio.run(by.confirm(Order("", "restart", job, 1)))
    assert isinstance(found, Confirmed)
    assert found.ending is not None
    return found


def test_its_user_cancelled_it(cluster: real.Slurm, by: Slurm) -> None:
    ending = asked(by, cancelled(cluster, NOBODY)).ending
    assert ending is not None
    assert (ending.kind, ending.by) == ("cancelled", "owner"), ending
    assert ending.said.startswith("Slurm says CANCELLED")
    assert ending.said.endswith("; its user nobody cancelled it")


def test_somebody_else_cancelled_it(cluster: real.Slurm, by: Slurm) -> None:
    ending = asked(by, cancelled(cluster, 0)).ending
    assert ending is not None
    assert (ending.kind, ending.by) == ("cancelled", "other")
    assert ending.said.endswith("; root (or Slurm itself) cancelled it, who is not its user")


def test_a_task_of_an_array(cluster: real.Slurm) -> None:
    array = submitted(cluster, "--array=4,7", "-o", f"{cluster.folder}/%A_%a.out")
    cluster.wait_for(f"{array}_7", "begun")
    cluster.run("scancel", f"{array}_7")
    cluster.as_user(NOBODY, "scancel", f"{array}_4")
    by = Slurm([Commands(configuration=cluster.configuration)])
    found = []
    for task in (f"{array}_4", f"{array}_7"):
        cluster.wait(task, "CANCELLED")
        ending = asked(by, task).ending
        assert ending is not None
        found.append(ending.by)
    assert found == ["owner", "other"]


def test_the_accounting_is_away(cluster: real.Slurm, by: Slurm) -> None:
    """Then nobody knows who it was, and all else stays as it is."""
    job = cancelled(cluster, 0)
    cluster.end("slurmdbd")
    try:
        ending = asked(by, job).ending
        assert ending is not None
        assert (ending.kind, ending.by) == ("cancelled", None)
    finally:
        cluster.start_slurmdbd()


def test_check_says_that_the_accounting_does_not_answer(cluster: real.Slurm) -> None:
    by = Slurm([Commands(configuration=cluster.configuration)])
    assert asyncio.run(by.check()) == []
    cluster.end("slurmdbd")
    try:
        (problem,) = asyncio.run(by.check())
        assert problem.startswith("who cancels a job stays unknown: sacct")
    finally:
        cluster.start_slurmdbd()
