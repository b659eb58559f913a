"""How a job of Kubernetes ended, by what the cluster says of it, its pods and their nodes. Values in, value out.

What a pod was ended by stands before what it ended with: the peers of a pod that was evicted, or ran out of memory, end with
errors of their own. https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from diagnose.decision.ending import Ending, Kind
from service.acting.executors.kubernetes_api import Object
from service.acting.executors.kubernetes_jobs import at, conditions, ended, went_well

_DISRUPTIONS: Final[dict[str, Kind]] = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "preempted",
    "DeletionByTaintManager": "preempted",  # of a node that still works; else it is a node failure
    "DeletionByPodGC": "node_failure",  # the node is gone
}
_OF_PODS: Final[dict[str, Kind]] = {
    "NodeLost": "node_failure",
    "UnexpectedAdmissionError": "node_failure",  # its devices are fewer than it told, or not healthy
    "Preempting": "preempted",
    "NodeShutdown": "preempted",
    "Terminated": "preempted",  # by a node that shuts down
}
"""reasons in a pod's status"""
_LOW_ON_MEMORY: Final = "low on resource: memory"
_LATE: Final = "active longer than specified deadline"
_RANKS: Final[tuple[Kind, ...]] = ("node_failure", "out_of_memory", "time_limit", "preempted", "failed")
_LONGEST: Final = 300


def cancelled(shown: str) -> Ending:
    return Ending("cancelled", f"Kubernetes says that {shown} is being deleted")


def ending_of(shown: str, job: Object, pods: Sequence[Object], nodes: Mapping[str, Object]) -> Ending | None:
    """None if the job is not over, or went well. ``nodes``: those of ``doubtful``."""
    if not ended(job) or went_well(job):
        return None
    failed = next(conditions(job, "Failed"), None) or at(job, "status", "state")  # Volcano has a phase
    said: list[tuple[Kind, str]] = [_of_the_job(shown, failed)]
    for pod in pods:
        said += _of_a_pod(pod, nodes)
    kind, why = min(said, key=lambda one: _RANKS.index(one[0]))
    return Ending(kind, f"Kubernetes says that {_printable(why)}")


def doubtful(pods: Iterable[Object]) -> tuple[str, ...]:
    """Nodes that may have failed: of pods that were driven off them, or that never ended."""
    found = {
        str(node)
        for pod in pods
        if (node := at(pod, "spec", "nodeName"))
        and (_disruption(pod)[0] == "DeletionByTaintManager" or at(pod, "status", "phase") in ("Running", "Unknown"))
    }
    return tuple(sorted(found))


def _of_the_job(shown: str, failed: Any) -> tuple[Kind, str]:
    reason, message = str(at(failed, "reason") or ""), str(at(failed, "message") or "")
    late = reason == "DeadlineExceeded" or _LATE in message
    told = ": ".join(filter(None, (reason, message)))
    return "time_limit" if late else "failed", f"{shown} failed{f' ({told})' if told else ''}"


def _of_a_pod(pod: Object, nodes: Mapping[str, Object]) -> Iterable[tuple[Kind, str]]:
    node = str(at(pod, "spec", "nodeName") or "")
    shown = f"pod {at(pod, 'metadata', 'name')}{f' on {node}' if node else ''}"
    if node in nodes and (why := _not_ready(nodes[node])) is not None:
        yield "node_failure", f"{shown} was on a node that is not ready ({why})"
    disruption, message = _disruption(pod)
    reason, told = str(at(pod, "status", "reason") or ""), str(at(pod, "status", "message") or "")
    if disruption in _DISRUPTIONS:
        yield _DISRUPTIONS[disruption], f"{shown} was disrupted by {disruption}: {message}"
    elif reason in _OF_PODS:
        yield _OF_PODS[reason], f"{shown} ended with {reason}: {told}"
    elif reason == "Evicted" or disruption == "TerminationByKubelet":
        yield "out_of_memory" if _LOW_ON_MEMORY in told else "failed", f"{shown} was evicted: {told or message}"
    elif reason == "DeadlineExceeded":
        yield "time_limit", f"{shown} reached its deadline"
    for one in _containers(pod):
        ended_by, code = at(one, "state", "terminated", "reason"), at(one, "state", "terminated", "exitCode")
        if ended_by == "OOMKilled":
            yield "out_of_memory", f"container {at(one, 'name')} of {shown} ended with OOMKilled"
        elif isinstance(code, int) and code != 0:
            yield "failed", f"container {at(one, 'name')} of {shown} ended with exit code {code} ({ended_by})"


def _disruption(pod: Object) -> tuple[str, str]:
    found = next(conditions(pod, "DisruptionTarget"), None)
    return str(at(found, "reason") or ""), str(at(found, "message") or "")


def _containers(pod: Object) -> Iterable[Any]:
    for listed in ("initContainerStatuses", "containerStatuses"):
        found = at(pod, "status", listed)
        yield from found if isinstance(found, list) else []


def _not_ready(node: Object) -> str | None:
    """Why a node is not ready, if so."""
    listed = at(node, "status", "conditions")
    for one in listed if isinstance(listed, list) else []:
        if at(one, "type") == "Ready" and at(one, "status") in ("False", "Unknown"):
            return str(at(one, "reason") or at(one, "status"))
    return None


def _printable(text: str) -> str:
    said = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return said.removesuffix(".").removesuffix(":")[:_LONGEST]
