"""What ``kubectl get jobs,pods,events -A -o json`` prints -> runs. Jobs of the Kubeflow training operator are read too.

Kubernetes removes pods and events early. So several lists may be given, taken one after the other: of each thing the last list
counts.

What the fields mean: https://kubernetes.io/docs/concepts/workloads/controllers/job/ and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from diagnose.errors import SourceError
from diagnose.study import events
from diagnose.study.events import Place, PodEvents
from diagnose.study.runs import Run, State

COMMAND: Final = "kubectl get jobs,pods,events -A -o json"
_DEVICES: Final = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915", "huawei.com/Ascend910")
_OWNERS: Final = ("batch.kubernetes.io/job-name", "job-name", "training.kubeflow.org/job-name")
_ENDS: Final[dict[str, State]] = {"Complete": "completed", "Succeeded": "completed", "SuccessCriteriaMet": "completed",
                                  "Failed": "failed"}  # fmt: skip
_STATES: Final[dict[str, State]] = {"OOMKilled": "out_of_memory", "Evicted": "preempted", "Preempting": "preempted",
                                    "NodeLost": "node_failure", "NodeShutdown": "node_failure", "Terminated": "node_failure",
                                    "DeadlineExceeded": "time_limit",
                                    "PreemptionByScheduler": "preempted", "EvictionByEvictionAPI": "preempted",
                                    "TerminationByKubelet": "preempted", "DeletionByTaintManager": "node_failure",
                                    "DeletionByPodGC": "node_failure"}  # fmt: skip
"""what a job, a pod or a container says of its end; the last five are reasons of a pod's condition DisruptionTarget"""
_SPACE: Final = re.compile(r"\s*")
_NO_LIST: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def read(lists: Iterable[tuple[str, str]]) -> Iterator[Run]:
    """The runs of lists, each with its name, and with the nodes of their pods."""
    items: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for text, where in lists:
        try:
            items |= {_key(item): item for item in _items(text)}
        except _NO_LIST:
            raise _no_list(where) from None
    try:
        yield from _runs(list(items.values()))
    except _NO_LIST:
        raise _no_list(where) from None


def _items(text: str) -> Iterator[Mapping[str, Any]]:
    """Of one list, or of what ``kubectl get --watch`` prints: one after the other."""
    decoder, at = json.JSONDecoder(), _begin(text, 0)
    while at < len(text) or not at:
        value, end = decoder.raw_decode(text, at)
        at = _begin(text, end)
        yield from value.get("items", [value])


def _begin(text: str, at: int) -> int:
    """Where the next value begins."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _key(item: Mapping[str, Any]) -> tuple[str, ...]:
    meta = item["metadata"]
    return item["kind"], str(meta.get("namespace")), str(meta["name"]), str(meta.get("uid"))


def _no_list(where: str) -> SourceError:
    return SourceError("this is no list of jobs in JSON", where=where, remedy=f"write it with: {COMMAND}")


def _runs(items: Sequence[Mapping[str, Any]]) -> Iterator[Run]:
    pods: dict[Place, list[Any]] = defaultdict(list)
    for item in items:
        if item["kind"] == "Pod":
            name = next((item["metadata"].get("labels", {}).get(label) for label in _OWNERS
                         if label in item["metadata"].get("labels", {})), None)  # fmt: skip
            if name:
                pods[item["metadata"]["namespace"], name].append(item)
    gone = events.of_jobs(item for item in items if item["kind"] == "Event")
    for item in items:
        if item["kind"] not in ("Pod", "Event"):
            place = item["metadata"]["namespace"], item["metadata"]["name"]
            mine = item["metadata"].get("uid")
            yield _run(
                item,
                [pod for pod in pods[place] if _owner(pod) in (None, mine)],
                [pod for pod in gone.get(place, ()) if pod.owner in (None, mine)],
            )


def _owner(pod: Mapping[str, Any]) -> str | None:
    """The uid of its job: in lists of many hours there may be two jobs of one name."""
    return next((one["uid"] for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), None)


def _run(item: Mapping[str, Any], pods: Sequence[Any], told: Sequence[PodEvents]) -> Run:
    """A job, its pods, and what events tell of its pods, which may be gone."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    begun = _time(status.get("startTime"))
    end = next((one for one in status.get("conditions") or () if one["type"] in _ENDS and one["status"] == "True"), None)
    state: State = _ENDS[end["type"]] if end else "running" if begun else "waiting"
    if state == "failed":
        said = [_STATES.get(str(end.get("reason")) if end else ""), *map(_state_of, pods), *(one.state for one in told)]
        state = next(filter(None, said), "failed")
    ended = _time(status.get("completionTime")) or (_time(end.get("lastTransitionTime")) if end else None)
    placed = [*(_time(one.get("status", {}).get("startTime")) for one in pods), *(one.placed for one in told)]
    running = max((at for at in placed if at is not None), default=begun)
    return Run(
        meta["name"],
        state,
        name=meta["name"].rstrip("-0123456789") or meta["name"],
        user=(meta.get("labels") or {}).get("user") or meta["namespace"],
        partition=(meta.get("labels") or {}).get("kueue.x-k8s.io/queue-name", ""),
        raw=str(meta.get("uid") or meta["name"]),
        names=tuple(dict.fromkeys([meta["name"], *_names_of(pods), *(one.name for one in told)])),
        space=meta["namespace"],
        waits_since=_time(meta.get("creationTimestamp")),
        started=running,
        ended=ended,
        elapsed_s=max(0.0, ended - running) if ended is not None and running is not None else 0.0,
        gpus=_gpus(spec),
        nodes=tuple(sorted({*(one.get("spec", {}).get("nodeName") for one in pods), *(one.node for one in told)} - {None, ""})),
        exit_code=next((code for code in map(_code_of, pods) if code), ""),
    )


def _names_of(pods: Sequence[Any]) -> Iterator[str]:
    return (str(one["metadata"][of]) for one in pods for of in ("name", "uid") if of in one["metadata"])


def _time(text: object) -> float | None:
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None


def _gpus(spec: Mapping[str, Any]) -> int:
    roles = next((value for name, value in spec.items() if name.lower().endswith("replicaspecs")), None)
    if roles is not None:
        return sum(int(role.get("replicas", 1)) * _of_template(role["template"]) for role in roles.values())
    return int(spec.get("parallelism", 1)) * _of_template(spec["template"]) if "template" in spec else 0


def _of_template(template: Mapping[str, Any]) -> int:
    limits = [(box.get("resources") or {}).get("limits") or {} for box in template["spec"].get("containers", ())]
    return sum(int(each.get(device, 0)) for each in limits for device in _DEVICES)


def _ended_boxes(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for box in pod.get("status", {}).get("containerStatuses") or ():
        for place in ("state", "lastState"):
            ended = (box.get(place) or {}).get("terminated")
            if ended:
                yield ended


def _state_of(pod: Mapping[str, Any]) -> State | None:
    status = pod.get("status", {})
    disrupted = [one.get("reason") for one in status.get("conditions") or () if one["type"] == "DisruptionTarget"]
    said = [status.get("reason"), *disrupted, *(ended.get("reason") for ended in _ended_boxes(pod))]
    return next((_STATES[word] for word in said if word in _STATES), None)


def _code_of(pod: Mapping[str, Any]) -> str:
    return next((str(ended["exitCode"]) for ended in _ended_boxes(pod) if ended.get("exitCode")), "")
