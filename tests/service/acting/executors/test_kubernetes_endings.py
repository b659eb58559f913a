"""How Kubernetes says that a job ended."""

from __future__ import annotations

from typing import Any

import pytest

from service.acting.executors.kubernetes_endings import doubtful, ending_of

Object = dict[str, Any]
GONE = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}


def job(reason: str = "BackoffLimitExceeded", message: str = "Job has reached the specified backoff limit") -> Object:
    return {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": message}]}}


def pod(code: int | None = None, by: str = "Error", *, disrupted: str = "", message: str = "", **status: Any) -> Object:
    if code is not None:
        status["containerStatuses"] = [{"name": "train", "state": {"terminated": {"exitCode": code, "reason": by}}}]
    if disrupted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted, "message": message}]
    status = {"phase": "Failed", "message": message, **status}
    return {"metadata": {"name": "llama-0"}, "spec": {"nodeName": "gpu-1"}, "status": status}


PEER = pod(1)
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "


@pytest.mark.parametrize(
    ("pods", "kind", "says"),
    [
        ([PEER], "failed", "Job ml/llama failed (BackoffLimitExceeded: Job has reached"),
        ([PEER, pod(137, "OOMKilled")], "out_of_memory", "container train of pod llama-0 on gpu-1 ended with OOMKilled"),
        ([PEER, pod(137)], "failed", "Job ml/llama failed"),
        ([PEER, pod(143, disrupted="PreemptionByScheduler", message="preempting to accommodate a higher priority pod")],
         "preempted", "disrupted by PreemptionByScheduler: preempting to accommodate"),
        ([PEER, pod(143, disrupted="EvictionByEvictionAPI", message="Eviction API")], "preempted", "EvictionByEvictionAPI"),
        ([PEER, pod(disrupted="DeletionByPodGC", message="PodGC: node no longer exists")], "node_failure", "DeletionByPodGC"),
        ([PEER, pod(137, disrupted="TerminationByKubelet", reason="Evicted", message=LOW)], "out_of_memory", "evicted"),
        ([PEER, pod(reason="UnexpectedAdmissionError", message="Requested: 8, Available: 7")], "node_failure", "Available: 7"),
        ([PEER, pod(reason="Terminated", disrupted="TerminationByKubelet")], "preempted", "ended with Terminated"),
    ],
)  # fmt: skip
def test_what_ended_a_pod_stands_before_what_its_peers_ended_with(pods: list[Object], kind: str, says: str) -> None:
    ending = ending_of("Job ml/llama", job(), pods, {})
    assert ending is not None
    assert (ending.kind, says in ending.said) == (kind, True), ending


def test_a_pod_that_used_too_much_disk_ran_not_out_of_memory() -> None:
    full = pod(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.")
    ending = ending_of("Job ml/llama", job(), [PEER, full], {})
    assert ending is not None
    assert ending.kind == "failed"


@pytest.mark.parametrize(
    "failed",
    [
        job("DeadlineExceeded", "Job was active longer than specified deadline"),
        job("PyTorchJobFailed", "PyTorchJob llama has failed because it was active longer than specified deadline"),
    ],
)
def test_its_deadline_is_a_time_limit(failed: Object) -> None:
    ending = ending_of("Job ml/llama", failed, [pod(143)], {})
    assert ending is not None
    assert ending.kind == "time_limit"


def test_only_nodes_whose_pods_were_driven_off_or_never_ended_are_doubtful() -> None:
    lost = pod(phase="Running")
    assert doubtful([PEER, lost]) == ("gpu-1",)
    assert doubtful([PEER]) == ()
    ending = ending_of("Job ml/llama", job(), [PEER, lost], {"gpu-1": GONE})
    assert ending is not None
    assert (ending.kind, "not ready (NodeStatusUnknown)" in ending.said) == ("node_failure", True)


@pytest.mark.parametrize(
    "status", [{}, {"conditions": [{"type": "Complete", "status": "True"}]}, {"state": {"phase": "Running"}}]
)
def test_what_is_not_over_or_went_well_has_none(status: Object) -> None:
    assert ending_of("Job ml/llama", {"status": status}, [PEER], {}) is None


def test_volcano_has_a_phase() -> None:
    ending = ending_of("Job ml/llama", {"status": {"state": {"phase": "Failed", "reason": "TaskFailed"}}}, [], {})
    assert ending is not None
    assert ending.said == "Kubernetes says that Job ml/llama failed (TaskFailed)"
