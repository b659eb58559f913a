"""Job lists of Kubernetes, as runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.errors import SourceError
from diagnose.study.kubernetes import read


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
        "metadata": {"name": f"{job}-x", "namespace": "llm", "labels": {"batch.kubernetes.io/job-name": job}},
        "spec": {"nodeName": node},
        "status": {
            "startTime": "2026-11-01T01:00:00Z",
            "containerStatuses": [{"state": {"terminated": ended}}] if ended else [],
        },
    }


def test_jobs_get_the_nodes_and_the_reason_of_their_pods() -> None:
    items = [
        job("sft-17", "Complete"),
        job("pre-1", "Failed", "BackoffLimitExceeded"),
        job("late-2", "Failed", "DeadlineExceeded"),
        job("on-3", None),
        pod("pre-1", "n1", reason="OOMKilled", exitCode=137),
        pod("pre-1", "n2"),
    ]
    found = list(read(json.dumps({"items": items}), "jobs.json"))
    assert [run.state for run in found] == ["completed", "out_of_memory", "time_limit", "running"]
    failed = found[1]
    assert (failed.gpus, failed.nodes, failed.exit_code, failed.elapsed_s) == (16, ("n1", "n2"), "137", 3600.0)
    assert failed.waits_since is not None
    assert (found[0].name, failed.started) == ("sft", failed.waits_since + 3600)


def test_training_operators_count_all_their_roles() -> None:
    role = {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}
    item = job("mpi", "Succeeded")
    item["spec"] = {"pytorchReplicaSpecs": {"Master": {"replicas": 1} | role, "Worker": {"replicas": 3} | role}}
    (run,) = read(json.dumps({"items": [item]}), "jobs.json")
    assert (run.gpus, run.state) == (32, "completed")


def test_who_was_put_out_says_why_in_a_condition() -> None:
    items: list[dict[str, Any]] = []
    for name, reason in (("a", "PreemptionByScheduler"), ("b", "DeletionByTaintManager"), ("c", "SomethingNew")):
        conditions = [{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True", "reason": reason}]
        ended = pod(name, "n1", reason="Error", exitCode=143)
        ended["status"]["conditions"] = conditions
        items += [job(name, "Failed", "BackoffLimitExceeded"), ended]
    items[0]["status"]["conditions"].insert(0, {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"})
    assert [run.state for run in read(json.dumps({"items": items}), "jobs.json")] == ["preempted", "node_failure", "failed"]


@pytest.mark.parametrize("text", ["[]", '{"items": [{"kind": 1}]}', "[" * 100_000], ids=["list", "kind", "deep"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="kubectl get jobs,pods"):
        list(read(text, "jobs.json"))
