"""A malicious ingest token against a real Slurm, in mode auto: it touches no job of others, and takes no node out of service.

Each attack is what somebody can do who may send logs and has read the documents. What a token may be used for is tested too: a
service that does nothing at all would pass the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import slurm as real
from tests.support.attacker import SOFT, STEPS, XID, Service, acting, until

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
NODES = tuple(f"gpu-{number}" for number in range(1, 7))


@dataclass
class World(Service):
    """A cluster where somebody else's job runs, a service that acts on it, and an administrator who looks."""

    cluster: real.Slurm
    victim: str
    """a job of root's, on gpu-1"""
    mine: str
    """a job of the attacker's own, on gpu-2"""

    def drained(self) -> list[str]:
        return [node for node in self.cluster.nodes if "DRAIN" in self.cluster.node(node)["State"]]

    def untouched(self) -> None:
        """Nobody's job and no node has noticed anything."""
        assert self.drained() == [], self.actions()
        for job in (self.victim, self.mine):
            assert (self.cluster.job(job)["JobState"], self.cluster.job(job)["Restarts"]) == ("RUNNING", "0"), self.actions()


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
    (tmp_path / "slurm.jwt").write_text(daemons.token())
    executor = (
        f"type: slurm, slurmrestd: {{url: '{daemons.url}', user: {daemons.user}, token_file: slurm.jwt}}, "
        f"commands: {{configuration: {daemons.configuration}}}"
    )
    with acting(tmp_path, executor, SLURM_CONF=str(daemons.configuration)) as service:
        victim = daemons.submit("sleep 300", "--nodelist=gpu-1")
        mine = daemons.submit("sleep 300", "--nodelist=gpu-2", "--uid=nobody", "-o", "/dev/null", "-D", "/")
        for job in (victim, mine):
            daemons.wait(job, "RUNNING")
        yield World(service.server, daemons, victim, mine)
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
    until(lambda: len(world.server.get("/v1/nodes", limit=200)["nodes"]) >= 100, "the nodes to be known")
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


def test_a_file_of_ones_own_with_anothers_number(world: World) -> None:
    """The site's shipper has a token for all users, and says of each file whose it is."""
    site = world.token("site", "--role", "ingest", "--user", "*", "--node", "*")
    theirs = {"source": f"/logs/root/slurm-{world.victim}.out", "label.user": "root"}
    assert site.push(world.victim, STEPS, node="gpu-1", **theirs) == 200
    own = {"source": f"/logs/nobody/slurm-{world.victim}.out", "label.user": "nobody"}
    assert site.push(world.victim, SOFT, node="gpu-1", **own) == 200
    assert site.end(world.victim) == 200
    (action,) = world.settled(world.victim)
    assert "for whom not all of the tokens" in action["unconfirmed"]
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
