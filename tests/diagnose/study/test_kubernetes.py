"""Job lists of Kubernetes, as runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.errors import SourceError
from diagnose.study.kubernetes import read
from diagnose.study.runs import Run


def job(name: str, end: str | None, reason: str = "", **spec: Any) -> dict[str, Any]:
    box = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    conditions = (
        [{"type": end, "status": "True", "reason": reason, "lastTransitionTime": "2026-11-01T02:00:00Z"}] if end else []
    )
    return {
        "kind": "Job",
        "metadata": {"name": name, "namespace": "llm", "uid": f"u-{name}", "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": [box]}}} | spec,
        "status": {"startTime": "2026-11-01T00:00:10Z", "conditions": conditions},
    }


def pod(job: str, node: str, **ended: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job}-{node}", "namespace": "llm", "labels": {"batch.kubernetes.io/job-name": job}},
        "spec": {"nodeName": node},
        "status": {
            "startTime": "2026-11-01T01:00:00Z",
            "containerStatuses": [{"state": {"terminated": ended}}] if ended else [],
        },
    }


def event(of: tuple[str, str], reason: str, message: str, at: str = "2026-11-01T00:30:00Z", **more: Any) -> dict[str, Any]:
    kind, name = of
    subject = {"kind": kind, "namespace": "llm", "name": name}
    meta = {"name": f"{name}.{reason}.{at}", "namespace": "llm", "creationTimestamp": at}
    return {"kind": "Event", "metadata": meta, "involvedObject": subject, "reason": reason, "message": message} | more


def runs(*items: dict[str, Any]) -> list[Run]:
    return list(read([(json.dumps({"items": items}), "jobs.json")]))


def test_jobs_get_the_nodes_and_the_reason_of_their_pods() -> None:
    items = [
        job("sft-17", "Complete"),
        job("pre-1", "Failed", "BackoffLimitExceeded"),
        job("late-2", "Failed", "DeadlineExceeded"),
        job("on-3", None),
        pod("pre-1", "n1", reason="OOMKilled", exitCode=137),
        pod("pre-1", "n2"),
    ]
    found = runs(*items)
    assert [run.state for run in found] == ["completed", "out_of_memory", "time_limit", "running"]
    failed = found[1]
    assert (failed.gpus, failed.nodes, failed.exit_code, failed.elapsed_s) == (16, ("n1", "n2"), "137", 3600.0)
    assert failed.waits_since is not None
    assert (found[0].name, failed.started) == ("sft", failed.waits_since + 3600)


def test_training_operators_count_all_their_roles() -> None:
    role = {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}
    item = job("mpi", "Succeeded")
    item["spec"] = {"pytorchReplicaSpecs": {"Master": {"replicas": 1} | role, "Worker": {"replicas": 3} | role}}
    (run,) = runs(item)
    assert (run.gpus, run.state) == (32, "completed")


def test_who_was_put_out_says_why_in_a_condition() -> None:
    items: list[dict[str, Any]] = []
    for name, reason in (("a", "PreemptionByScheduler"), ("b", "DeletionByTaintManager"), ("c", "SomethingNew")):
        conditions = [{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True", "reason": reason}]
        ended = pod(name, "n1", reason="Error", exitCode=143)
        ended["status"]["conditions"] = conditions
        items += [job(name, "Failed", "BackoffLimitExceeded"), ended]
    items[0]["status"]["conditions"].insert(0, {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"})
    assert [run.state for run in runs(*items)] == ["preempted", "node_failure", "failed"]


def gone(pod: str, node: str, *said: tuple[str, str]) -> list[dict[str, Any]]:
    """The events of a pod that Kubernetes has removed."""
    return [
        event(("Job", pod.rpartition("-")[0]), "SuccessfulCreate", f"Created pod: {pod}"),
        event(("Pod", pod), "Scheduled", f"Successfully assigned llm/{pod} to {node}", "2026-11-01T00:40:00Z"),
        *(event(("Pod", pod), *one, "2026-11-01T01:50:00Z") for one in said),
    ]


def test_events_tell_of_pods_that_are_gone() -> None:
    ended = [job("pre-1", "Failed", "BackoffLimitExceeded"), *gone("pre-1-x2x2x", "n1", ("Evicted", "low on memory"))]
    other = [job("pre-2", "Failed", "BackoffLimitExceeded"), *gone("pre-2-z4z4z", "n2", ("BackOff", "restarting"))]
    evicted, unknown = runs(*ended, *other)
    assert (evicted.state, evicted.nodes, evicted.names) == ("preempted", ("n1",), ("pre-1", "pre-1-x2x2x"))
    assert (unknown.state, unknown.nodes) == ("failed", ("n2",))
    assert evicted.waits_since is not None
    assert (evicted.started, evicted.elapsed_s) == (evicted.waits_since + 2400, 4800.0)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ([("Preempted", "Preempted by pod 0e6a on node n1")], "preempted"),
        ([("NodeNotReady", "Node is not ready")], "node_failure"),
        ([("TaintManagerEviction", "Marking for deletion Pod llm/a-x2x2x")], "node_failure"),
        ([("TaintManagerEviction", "Marking for"), ("TaintManagerEviction", "Cancelling deletion of Pod")], "failed"),
        ([("Killing", "Stopping container train")], "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1][1][:10],
)
def test_an_event_says_why_a_pod_was_put_out(said: list[tuple[str, str]], state: str) -> None:
    (run,) = runs(job("a", "Failed", "BackoffLimitExceeded"), *gone("a-x2x2x", "n1", *said))
    assert run.state == state


def test_what_went_well_is_no_failure_although_a_pod_was_put_out() -> None:
    (run,) = runs(job("a", "Complete"), *gone("a-x2x2x", "n1", ("Evicted", "low on memory")))
    assert run.state == "completed"


def test_a_pod_says_more_than_its_events() -> None:
    killed = pod("a", "n1", reason="OOMKilled", exitCode=137)
    (run,) = runs(
        job("a", "Failed", "BackoffLimitExceeded"), killed, *gone("a-n1", "n1", ("NodeNotReady", "Node is not ready"))
    )
    assert (run.state, run.nodes) == ("out_of_memory", ("n1",))


def test_the_newer_form_of_events_is_read() -> None:
    new = gone("a-x2x2x", "n1", ("Preempted", "by a pod"))
    for one in new:
        one["regarding"], one["note"] = one.pop("involvedObject"), one.pop("message")
        one["eventTime"] = one["metadata"]["creationTimestamp"].replace("Z", ".123456Z")
    (run,) = runs(job("a", "Failed"), *new)
    assert (run.state, run.nodes) == ("preempted", ("n1",))


def test_two_jobs_of_one_name_have_their_own_pods() -> None:
    first, second = job("a", "Complete"), job("a", "Failed")
    second["metadata"]["uid"] = "second"
    its, told = pod("a", "n2"), gone("a-x2x2x", "n1", ("Evicted", "low on memory"))
    its["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a", "uid": "second", "controller": True}]
    told[0]["involvedObject"]["uid"] = "u-a"
    assert [(run.state, run.nodes) for run in runs(first, second, its, *told)] == [("completed", ("n1",)), ("failed", ("n2",))]


def test_of_several_lists_the_last_one_counts() -> None:
    first = json.dumps({"items": [job("a", None), pod("a", "n1"), *gone("a-y3y3y", "n2", ("Evicted", "low"))]})
    watched = json.dumps(job("a", "Failed")) + "\n" + json.dumps(job("b", None)) + "\n"
    later, new = read([(first, "1.json"), (watched, "2.json")])
    assert (later.state, later.nodes, new.job) == ("preempted", ("n1", "n2"), "b")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"items": [{"kind": "Event", "metadata": {"name": "e"}, "eventTime": "x"}]}',
        '{"items": [{"kind": 1}]}',
        "[" * 100_000,
    ],
    ids=["empty", "list", "time", "kind", "deep"],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="kubectl get jobs,pods"):
        list(read([(text, "jobs.json")]))
