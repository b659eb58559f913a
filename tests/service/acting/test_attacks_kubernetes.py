"""A malicious ingest token against Kubernetes, in mode auto: it touches no job of others, and taints no node.

As ``test_attacks.py`` does against Slurm. The API server is the fake of the executor's own tests, and a real one where
DIAGNOSE_KUBERNETES names it. What pods do is written by hand in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.acting.executors import test_kubernetes as kubernetes
from tests.service.acting.executors.test_kubernetes import Cluster, server, tainted, uid
from tests.support.attacker import SOFT, STEPS, XID, Service, acting, until

__all__ = ["server"]
pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
NODES = tuple(f"gpu-{number}" for number in range(1, 7))
THEIRS, MINE = kubernetes.JOBS + "/llama", kubernetes.JOBS.replace("/ml/", "/lab/") + "/mine"


@dataclass
class World(Service):
    """A cluster where somebody else's job runs, and one of the attacker's in a namespace of its own."""

    cluster: Cluster
    uids: dict[str, str]

    def out(self) -> list[str]:
        return [node for node in NODES if tainted(self.cluster, node)]

    def untouched(self, *jobs: str) -> None:
        """No node has noticed anything, and none of these jobs."""
        assert self.out() == [], self.actions()
        for job in jobs or (THEIRS, MINE):
            assert uid(self.cluster.there(job)) == self.uids[job], self.actions()


@pytest.fixture
def world(server: Cluster, tmp_path: Path) -> Iterator[World]:
    for node in NODES:
        server.node(node)
    uids = {}
    for path, node, namespace in ((THEIRS, "gpu-1", "ml"), (MINE, "gpu-2", "lab")):
        folder, _, name = path.rpartition("/")
        uids[path] = uid(server.make(folder, kubernetes.job(name)))
        server.pod(f"{name}-x7k2p", node, {"job-name": name}, namespace)
        server.end(path)
    ca = f", ca: {server.ca}" if server.ca else ""
    executor = f"type: kubernetes, url: '{server.server.url}', token_file: {server.token}{ca}, namespaces: [ml, lab]"
    with acting(tmp_path, executor) as service:
        yield World(service.server, server, uids)
    server.clean()


def test_a_label_that_names_anothers_namespace(world: World) -> None:
    intern = world.token("intern", "--role", "ingest", "--namespace", "lab", "--node", "*")
    for number, label in enumerate(({"label.namespace": "ml"}, {"label.namespace": "ml", "label.kind": "Job"})):
        job = ("llama", "ml.llama")[number]
        assert intern.push(job, STEPS + SOFT, node="gpu-1", **label) == 200
        assert intern.end(job) == 200
    for action in world.settled("llama", "ml.llama"):
        assert action["state"] == "proposed", action
        assert "namespace ml" in action["unconfirmed"]
    world.untouched()


def test_a_job_that_has_the_name_of_anothers(world: World) -> None:
    intern = world.token("intern", "--role", "ingest")
    assert intern.push("ml.llama", STEPS + XID.format(node="gpu-1"), node="gpu-1") == 200
    assert intern.end("ml.llama") == 200
    world.settled("ml.llama")
    world.untouched()


def test_a_pod_whose_labels_name_anothers_job(world: World) -> None:
    """The site's shipper has a token for all namespaces, and says of each pod where it is."""
    site = world.token("site", "--role", "ingest", "--namespace", "*")
    labels = {"diagnose.job": "ml.llama", "namespace": "ml", "job-name": "llama"}
    pod = {"labels": labels, "pod_name": "mine-x7k2p", "namespace_name": "lab", "host": "gpu-1"}
    theirs = {**pod, "labels": {"job-name": "llama"}, "pod_name": "llama-x7k2p", "namespace_name": "ml"}
    records = [{"log": line, "kubernetes": theirs} for line in STEPS.splitlines()]
    records += [{"log": line, "kubernetes": pod} for line in (STEPS + SOFT).splitlines()]
    assert site.client.post("/v1/records", json=records).status_code < 300
    assert site.end("ml.llama") == 200
    (action,) = world.settled("ml.llama")
    assert (action["state"], bool(action["unconfirmed"])) == ("proposed", True)
    world.untouched()


def test_who_mixes_lines_into_anothers_job_ends_its_standing(world: World) -> None:
    """Its owner loses the restart that nobody needs to approve; nobody gains one."""
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "ml", "--node", "gpu-*")
    intern = world.token("intern", "--role", "ingest", "--namespace", "lab", "--node", "*")
    assert theirs.push("ml.llama", STEPS, node="gpu-1") == 200
    assert intern.push("ml.llama", SOFT, source="mine") == 200
    assert theirs.end("ml.llama") == 200
    world.settled("ml.llama")
    world.untouched()


def test_nodes_that_do_not_exist_make_no_room_for_isolations(world: World) -> None:
    intern = world.token("intern", "--role", "ingest", "--namespace", "lab", "--node", "*")
    for number in range(100):
        assert intern.push("many", "hello\n", node=f"made-up-{number}", source=f"s{number}") == 200
    until(lambda: len(world.server.get("/v1/nodes", limit=200)["nodes"]) >= 100, "the nodes to be known")
    for node in ("gpu-3", "gpu-4", "gpu-5"):
        label = {"label.namespace": "lab"}
        assert intern.push("lab.mine", STEPS + XID.format(node=node), node=node, source=f"{node}.log", **label) == 200
    assert intern.end("lab.mine") == 200
    world.settled("lab.mine")
    world.untouched()


def test_a_node_where_the_job_never_ran(world: World) -> None:
    """Also by the word of that node's own runner: it speaks of its node, and not of this job."""
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "lab")
    kernel = world.token("gpu-4", "--role", "node", "--node", "gpu-4")
    assert theirs.push("lab.mine", STEPS, node="gpu-2") == 200
    assert kernel.push("lab.mine", XID.format(node="gpu-4"), source="node:gpu-4/kern.log") == 200
    assert theirs.end("lab.mine") == 200
    world.settled("lab.mine")
    world.untouched()


def test_a_job_that_completed_is_not_run_again(world: World) -> None:
    world.cluster.status(MINE, {"conditions": [{"type": "Complete", "status": "True"}], "active": 0})
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "lab")
    assert theirs.push("lab.mine", STEPS + SOFT, node="gpu-2") == 200
    assert theirs.end("lab.mine") == 200
    (action,) = world.settled("lab.mine")
    assert "has completed, and did not fail" in action["unconfirmed"]
    world.untouched()


def test_a_token_for_a_namespace_gets_the_restart_of_its_job(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "lab", "--job", "lab.*")
    assert theirs.push("lab.mine", STEPS + SOFT, node="gpu-2") == 200
    assert theirs.end("lab.mine") == 200
    until(lambda: uid(world.cluster.get(MINE) or {"metadata": {"uid": world.uids[MINE]}}) != world.uids[MINE], "the restart")
    (action,) = world.settled("lab.mine")
    assert (action["owner"], action["subject"]) == ("default/lab", "jobs.batch/lab/mine")
    world.untouched(THEIRS)


def test_a_nodes_own_kernel_takes_it_out_of_service(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "lab")
    kernel = world.token("gpu-2", "--role", "node", "--node", "gpu-2")
    assert theirs.push("lab.mine", STEPS, node="gpu-2") == 200
    assert kernel.push("lab.mine", XID.format(node="gpu-2"), source="node:gpu-2/kern.log") == 200
    assert theirs.end("lab.mine") == 200
    world.settled("lab.mine")
    until(lambda: world.out() == ["gpu-2"], "the node to be tainted")
