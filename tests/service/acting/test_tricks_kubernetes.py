"""Tricks of a malicious ingest token against Kubernetes, in mode auto, beside those of ``test_attacks_kubernetes.py``.

Several tricks share a service, as each has a job of its own or must be refused. Nobody's job is touched, and no node
is tainted.
"""

from __future__ import annotations

import pytest

from tests.service.acting.executors import test_kubernetes as kubernetes
from tests.service.acting.executors.test_kubernetes import server, uid
from tests.service.acting.test_attacks_kubernetes import MINE, NODES, THEIRS, World, world
from tests.support.attacker import SOFT, STEPS, XID, Sender, until

__all__ = ["server", "world"]
pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


def lab(world: World, name: str = "intern", *words: str) -> Sender:
    return world.token(name, "--role", "ingest", "--namespace", "lab", "--node", "*", *words)


def failed(sender: Sender, job: str, text: str = SOFT, **params: str) -> str | None:
    """Push a log that fails, and its end. Returns the job, if it was taken."""
    status = sender.push(job, STEPS + text, **params)
    assert status in (200, 400, 403, 405, 422), (job, params, status)
    return job if status == 200 and sender.end(job) == 200 else None


@pytest.mark.parametrize(
    "words", [("--namespace", "lab"), ("--namespace", "lab", "--namespace", "l?b*")], ids=["one", "pattern"]
)
def test_a_namespace_with_odd_signs_is_nobodys(world: World, words: tuple[str, ...]) -> None:
    intern = world.token("intern", "--role", "ingest", "--node", "*", *words)
    odd = [
        "lab/../ml",
        "ml/../lab",
        "lab%2F..%2Fml",
        "lab/jobs/x/../../../ml",
        "ML",
        "ml ",
        "ml\n",
        "ml\0lab",
        "ｍｌ",
        "*",
        "lab,ml",
        "l*",
    ]
    taken = [
        job
        for number, namespace in enumerate(odd)
        for job in (f"llama-{number}", "llama")
        if failed(intern, job, **{"label.namespace": namespace, "label.kind": "Job", "node": "gpu-1"})
    ]
    world.settled(*dict.fromkeys(taken))
    world.untouched()


def test_a_name_with_odd_signs_is_nobodys(world: World) -> None:
    intern = lab(world)
    names = [
        "lab.ml.llama",
        "lab..llama",
        "lab.llama",
        "ml..llama",
        "lab.%2e%2e",
        "ML.llama",
        "ml.LLAMA",
        "ml.llama.",
        "lab.mine?x=1",
    ]
    taken = [name for name in names if failed(intern, name, node="gpu-1")]
    assert "lab.ml.llama" in taken
    world.settled(*taken)
    world.untouched()


def test_the_uid_of_anothers_job_makes_it_nobodys(world: World) -> None:
    intern = lab(world)
    theirs, mine = world.uids[THEIRS], world.uids[MINE]
    taken = [
        failed(intern, "lab.mine", node="gpu-2", **{"label.namespace": "lab", "label.job_uid": theirs}),
        failed(intern, "ml.llama", node="gpu-1", **{"label.namespace": "lab", "label.job_uid": theirs}),
        failed(
            intern, "llama", node="gpu-1", **{"label.namespace": "ml", "label.job_uid": mine, "label.kind": "job-controller"}
        ),
    ]
    world.settled(*filter(None, taken))
    world.untouched()


def test_pods_and_owners_that_the_attacker_made_lead_to_nobody(world: World) -> None:
    """Whoever may make pods may say on which node they are, and to which job they belong."""
    world.cluster.pod("fake-1", "gpu-1", {"job-name": "mine"}, "lab")
    world.cluster.pod("fake-2", "gpu-3", {"job-name": "mine"}, "lab")
    body = kubernetes.job("owned")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llama", "uid": world.uids[THEIRS], "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    world.cluster.make(MINE.rpartition("/")[0], body)
    world.cluster.pod("owned-x", "gpu-1", {"job-name": "owned"}, "lab")
    intern = lab(world)
    lines = "".join(XID.format(node=node) for node in NODES)
    assert intern.push("lab.mine", STEPS + lines, node="gpu-1") == 200
    assert intern.push("lab.owned", STEPS + SOFT, node="gpu-1") == 200
    assert (intern.end("lab.mine"), intern.end("lab.owned")) == (200, 200)
    world.settled("lab.mine", "lab.owned")
    assert world.out() == [], world.actions()
    world.untouched(THEIRS)


def test_many_jobs_of_one_owner_speak_against_a_node_as_one(world: World) -> None:
    """Each has a pod that its owner bound to the node, and a token that may accuse it."""
    intern, names = lab(world), [f"many-{number}" for number in range(6)]
    for name in names:
        world.cluster.make(MINE.rpartition("/")[0], kubernetes.job(name))
        world.cluster.pod(f"{name}-x", "gpu-1", {"job-name": name}, "lab")
        world.cluster.end(f"{MINE.rpartition('/')[0]}/{name}")
        assert failed(intern, f"lab.{name}", XID.format(node="gpu-1") + SOFT, node="gpu-1")
        world.settled(f"lab.{name}")
    world.untouched(THEIRS)


def test_the_kernel_of_one_node_says_nothing_of_another(world: World) -> None:
    """A node that was taken over has its own token, and speaks of nodes and jobs beside it."""
    kernel = world.token("gpu-2", "--role", "node", "--node", "gpu-2")
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "ml")
    assert theirs.push("ml.llama", STEPS, node="gpu-1") == 200
    for source in (
        "node:gpu-1/kern.log",
        "node:gpu-2/../node:gpu-1/kern.log",
        "node:gpu-1",
        "node:*/kern.log",
        "node:/kern.log",
    ):
        kernel.push("ml.llama", XID.format(node="gpu-1"), source=source)
    assert kernel.push("ml.llama", XID.format(node="gpu-1"), source="node:gpu-2/kern.log") == 200
    assert kernel.push("ml.llama", XID.format(node="gpu-1") + SOFT, source="rank0.log", node="gpu-1") in (200, 403)
    assert theirs.end("ml.llama") == 200
    failed(kernel, "ml.llama2", node="gpu-1", **{"label.namespace": "ml"})
    world.settled("ml.llama")
    world.untouched()


def test_who_only_ends_anothers_job_gains_nothing(world: World) -> None:
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "ml")
    assert theirs.push("ml.llama", STEPS + SOFT, node="gpu-1") == 200
    assert lab(world).end("ml.llama") == 200
    world.settled("ml.llama")
    world.untouched()


def test_a_job_that_was_deleted_and_made_again_under_its_name_is_another(world: World) -> None:
    """Between its end and the order, and once more by somebody else's hand."""
    intern = lab(world)
    assert intern.push("lab.mine", STEPS + SOFT, node="gpu-2") == 200
    until(lambda: world.server.client.get("/v1/jobs/lab.mine/report").status_code == 200, "a report")
    world.cluster.send("DELETE", MINE)
    until(lambda: world.cluster.get(MINE) is None, "the job to be gone")
    until(lambda: _made_again(world) > _told(world), "a second to pass")
    world.uids[MINE] = uid(world.cluster.there(MINE))
    world.cluster.pod("mine-again", "gpu-2", {"job-name": "mine"}, "lab")
    assert intern.end("lab.mine") == 200
    world.settled("lab.mine")
    world.untouched()


def _told(world: World) -> float:
    return float(world.server.get("/v1/jobs/lab.mine")["last_seen"])


def _made_again(world: World) -> float:
    from service.acting.executors.kubernetes_jobs import made

    world.cluster.send("DELETE", MINE)
    if world.cluster.get(MINE) is None:
        world.cluster.make(MINE.rpartition("/")[0], kubernetes.job("mine"))
    return made(world.cluster.there(MINE)) or 0.0


def test_findings_about_nodes_are_not_for_who_may_send_logs(world: World) -> None:
    intern = lab(world)
    event = {"involvedObject": {"kind": "Node", "name": "gpu-1"}, "type": "Warning", "reason": "GpuIsFallen", "message": "x"}
    event["lastTimestamp"] = event["firstTimestamp"] = "2026-11-28T12:00:00Z"
    health = {"nodeName": "gpu-1", "checkName": "GpuXid", "isFatal": True, "generatedTimestamp": "2026-11-28T12:00:00Z"}
    alert = {"status": "firing", "labels": {"node": "gpu-1", "alertname": "GpuLost"}, "startsAt": "2026-11-28T12:00:00Z"}
    state = {"component": "gpu", "states": [{"time": "2026-11-28T12:00:00Z", "health": "Unhealthy", "reason": "x"}]}
    told = {
        "findings/kubernetes-events": {"items": [event]},
        "findings/nvsentinel": {
            "specversion": "1.0",
            "type": "com.nvidia.nvsentinel.health.v1",
            "data": {"healthEvent": health},
        },
        "findings/alertmanager": {"version": "4", "status": "firing", "alerts": [alert]},
        "gpu-1/findings/gpud": [state],
        "gpu-1/findings/dcgm": {"lines": ["XID error 79 detected"]},
    }
    lost = f"2026-11-28T12:00:00Z gpu-1 kernel: {XID.format(node='gpu-1')}"
    plain = {"content": lost, "headers": {"Content-Type": "text/plain"}}
    assert intern.client.post("/v1/nodes/gpu-1/findings/kernel", **plain).status_code == 403
    told["gpu-1/findings/health-check"] = {"status": 1, "since": "2026-11-28T12:00:00Z"}
    for path, body in told.items():
        assert intern.client.post(f"/v1/nodes/{path}", json=body).status_code == 403, path
    assert failed(intern, "lab.mine", XID.format(node="gpu-2"), node="gpu-2")
    world.settled("lab.mine")
    world.untouched(THEIRS)


def test_labels_of_other_protocols_name_nobody_either(world: World) -> None:
    intern = lab(world)
    stream = {"namespace": "ml", "job": "ml.llama", "diagnose_job": "ml.llama", "pod": "llama-x7k2p", "node_name": "gpu-1"}
    values = [[str(1_795_867_000_000_000_000 + n), line] for n, line in enumerate((STEPS + SOFT).splitlines())]
    intern.client.post("/loki/api/v1/push", json={"streams": [{"stream": stream, "values": values}]})
    words = {"labels": {"job-name": "llama", "diagnose.job": "ml.llama"}, "pod_name": "llama-x7k2p", "namespace_name": "ml"}
    said = [{"log": line, "kubernetes": {**words, "host": "gpu-1"}} for line in (STEPS + SOFT).splitlines()]
    assert intern.client.post("/v1/records", json=said).status_code in (200, 202, 403)
    jobs = [one["name"] for one in world.server.get("/v1/jobs")["jobs"]]
    assert jobs
    for job in jobs:
        assert intern.end(job) == 200
    world.settled(*jobs)
    world.untouched()


def test_a_node_that_goes_and_comes_before_the_order_is_the_only_one_that_can_be_meant(world: World) -> None:
    """It is accused by its own kernel, and has another name when the order comes."""
    theirs = world.token("theirs", "--role", "ingest", "--namespace", "lab")
    kernel = world.token("gpu-2", "--role", "node", "--node", "gpu-2")
    assert theirs.push("lab.mine", STEPS, node="gpu-2") == 200
    assert kernel.push("lab.mine", XID.format(node="gpu-2"), source="node:gpu-2/kern.log") == 200
    world.cluster.send("DELETE", "/api/v1/nodes/gpu-2")
    world.cluster.node("gpu-20")
    assert theirs.end("lab.mine") == 200
    world.settled("lab.mine")
    assert not [one for one in ("gpu-20", *NODES) if one != "gpu-2" and kubernetes.tainted(world.cluster, one)]
    assert uid(world.cluster.there(THEIRS)) == world.uids[THEIRS]
