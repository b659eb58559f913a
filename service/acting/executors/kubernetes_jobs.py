"""Jobs of Kubernetes as values: which kinds there are, what state a job is in, and the manifest to make it again.

Nothing here talks to a cluster.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from service.acting.executors.kubernetes_api import Object, Place

RESTARTED_BY: Final = "diagnose/restarted-by"
RESTARTED_WHY: Final = "diagnose/restarted-why"
SUSPENDED_BY: Final = "diagnose/suspended-by"
HELD_BY: Final = "diagnose/held-by"
HELD_WHY: Final = "diagnose/held-why"
HOPELESS: Final = "diagnose/hopeless"
"""a condition of a failed pod, for rules of podFailurePolicy"""
ATTEMPT: Final = "diagnose/attempt"
"""set on the job and as a label of its pods, so that their output is known to belong to the next attempt
(rules/identity.yaml)
"""
_OURS: Final = (RESTARTED_BY, RESTARTED_WHY, SUSPENDED_BY, HELD_BY, HELD_WHY)
_HOSTNAME: Final = "kubernetes.io/hostname"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
"""this label has the name of a pod's TrainJob"""
_KUEUE: Final = "kueue.x-k8s.io/queue-name"
_WELL: Final = frozenset({"Complete", "Completed", "Succeeded"})
_ENDS: Final = _WELL | {"Failed"}
_VOLCANO_ENDS: Final = frozenset({"Completed", "Failed", "Terminated", "Aborted"})
_OF_THE_SERVER: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",  # what needs one of these adds it again
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_OF_THE_JOB_CONTROLLER: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job."""

    name: str
    group: str
    plural: str
    versions: tuple[str, ...]
    """those that we know, newest first"""
    templates: tuple[str, ...] = ()
    """path to the templates of its pods; * stands for every one"""
    suspend: tuple[str, ...] | None = None
    """path to the switch that ends its pods but keeps the job"""
    pods: str = "job-name"
    """the label by which its pods name it"""
    relabels: bool = False
    """its templates may be changed while it is suspended, so that later pods carry the number of their attempt"""

    def place(self, version: str, namespace: str, name: str) -> Place:
        return Place(self.group, version, self.plural, namespace, name)


def _kubeflow(name: str, replicas: str, versions: tuple[str, ...] = ("v1",)) -> Kind:
    return Kind(
        name,
        "kubeflow.org",
        f"{name.lower()}s",
        versions,
        ("spec", replicas, "*", "template"),
        ("spec", "runPolicy", "suspend"),
        "training.kubeflow.org/job-name",
        relabels=True,
    )


KINDS: Final = (
    Kind("TrainJob", "trainer.kubeflow.org", "trainjobs", ("v1alpha1",), (), ("spec", "suspend"), _JOBSET),
    Kind(
        "JobSet",
        "jobset.x-k8s.io",
        "jobsets",
        ("v1alpha2",),
        ("spec", "replicatedJobs", "*", "template", "spec", "template"),
        ("spec", "suspend"),
        _JOBSET,
        relabels=True,
    ),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("MPIJob", "mpiReplicaSpecs", ("v2beta1", "v1")),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    Kind("Job", "batch.volcano.sh", "jobs", ("v1alpha1",), ("spec", "tasks", "*", "template"), pods="volcano.sh/job-name"),
    Kind("Job", "batch", "jobs", ("v1",), ("spec", "template"), ("spec", "suspend")),
)
"""a kind comes after the kinds that create it"""

# --- the state of a job


def at(thing: Any, *way: str) -> Any:
    """The value at this path; None if there is nothing."""
    for step in way:
        thing = thing.get(step) if isinstance(thing, dict) else None
    return thing


def mapping(thing: Any, *way: str) -> dict[str, Any]:
    found = at(thing, *way)
    return found if isinstance(found, dict) else {}


def uid(thing: Object) -> str:
    return str(at(thing, "metadata", "uid"))


def made(thing: Object) -> float | None:
    """When it was made, by the cluster's clock, in whole seconds."""
    told = at(thing, "metadata", "creationTimestamp")
    with contextlib.suppress(TypeError, ValueError):
        return datetime.fromisoformat(told).timestamp()
    return None


def annotation(thing: Object, name: str) -> str | None:
    found = mapping(thing, "metadata", "annotations").get(name)
    return None if found is None else str(found)


def conditions(thing: Object, *names: str) -> Iterator[Object]:
    """Those of these types that hold."""
    listed = at(thing, "status", "conditions")
    for one in listed if isinstance(listed, list) else []:
        if at(one, "type") in names and at(one, "status") == "True":
            yield one


def condition(thing: Object, *names: str) -> bool:
    return any(conditions(thing, *names))


def ended(thing: Object) -> bool:
    return condition(thing, *_ENDS) or at(thing, "status", "state", "phase") in _VOLCANO_ENDS


def went_well(thing: Object) -> bool:
    return condition(thing, *_WELL) or at(thing, "status", "state", "phase") == "Completed"


def off(kind: Kind, thing: Object) -> bool:
    """Whether it is switched off, by us, its user or a queue."""
    return kind.suspend is not None and at(thing, *kind.suspend) is True


def waits(kind: Kind, thing: Object) -> bool:
    """Whether it is suspended by its user or by a queue: none of its pods runs."""
    return off(kind, thing) and not ended(thing)


def quiet(thing: Object) -> bool:
    """Whether its suspension has taken effect: no pod of it is active."""
    return condition(thing, "Suspended") and _active(thing) == 0


def _active(thing: Object) -> int:
    status = mapping(thing, "status")
    parts: list[Any] = [status]
    parts += mapping(status, "replicaStatuses").values()
    for listed in ("replicatedJobsStatus", "jobsStatus"):
        found = status.get(listed)
        parts += found if isinstance(found, list) else []
    return sum(int(count) for part in parts if isinstance(count := at(part, "active"), int))


def restarts(thing: Object) -> int | None:
    """How often its controller has restarted it, if known."""
    found = at(thing, "status", "restarts")
    return found if isinstance(found, int) else None


def attempt(thing: Object) -> int | None:
    """The number of the attempt, if we restarted it."""
    told = annotation(thing, ATTEMPT) or ""
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 7 else None


def controller(thing: Object) -> Object | None:
    """The object that made it and controls it."""
    owners = at(thing, "metadata", "ownerReferences")
    return next((one for one in (owners if isinstance(owners, list) else []) if at(one, "controller") is True), None)


def fails_by_itself(kind: Kind, thing: Object) -> bool:
    """Whether its own podFailurePolicy fails it as soon as one of its failed pods is said to be hopeless. The first rule that
    matches counts, so that one must be the first.
    """
    if kind.group == "batch":
        jobs: list[Any] = [thing]
    elif kind.name == "JobSet":
        listed = at(thing, "spec", "replicatedJobs")
        jobs = [at(one, "template") for one in (listed if isinstance(listed, list) else [])]
    else:
        return False
    return bool(jobs) and all(_begins_with_ours(at(one, "spec", "podFailurePolicy", "rules")) for one in jobs)


def _begins_with_ours(rules: Any) -> bool:
    first = rules[0] if isinstance(rules, list) and rules else None
    patterns = at(first, "onPodConditions")
    return at(first, "action") == "FailJob" and any(
        at(one, "type") == HOPELESS and at(one, "status") in (None, "True")
        for one in (patterns if isinstance(patterns, list) else [])
    )


# --- how it is made again


def renewed(kind: Kind, seen: Object, key: str, why: str, number: int | None) -> Object:
    """The manifest to make the same job again, without what the server and controllers wrote into it."""
    fresh: Object = copy.deepcopy({name: seen[name] for name in ("apiVersion", "kind", "metadata", "spec") if name in seen})
    metadata = fresh["metadata"]
    for name in _OF_THE_SERVER:
        metadata.pop(name, None)
    notes = {name: text for name, text in mapping(metadata, "annotations").items() if name not in _OURS}
    notes.pop("batch.kubernetes.io/job-tracking", None)
    metadata["annotations"] = {**notes, RESTARTED_BY: key, RESTARTED_WHY: why}
    if number is not None:
        metadata["annotations"][ATTEMPT] = str(number)
        _number(kind, fresh, number)
    if kind.group == "batch" and at(fresh, "spec", "manualSelector") is not True:
        fresh["spec"].pop("selector", None)
        for labels in (mapping(metadata, "labels"), mapping(fresh, "spec", "template", "metadata", "labels")):
            for name in _OF_THE_JOB_CONTROLLER:
                labels.pop(name, None)
    if kind.suspend is not None:
        queued = _KUEUE in mapping(metadata, "labels")  # Kueue lets it go when there is room
        if queued or annotation(seen, SUSPENDED_BY) is not None:
            put(fresh, kind.suspend, queued)
    return fresh


def put(thing: Object, way: Sequence[str], value: Any) -> None:
    for step in way[:-1]:
        thing = thing.setdefault(step, {})
    thing[way[-1]] = value


def patch(way: Sequence[str], value: Any) -> Object:
    """A merge patch of one field."""
    change: Object = {}
    put(change, way, value)
    return change


def resumed(kind: Kind, seen: Object, number: int | None) -> Object:
    """The patch that lets it go, with pods that know their attempt."""
    assert kind.suspend is not None
    changed = copy.deepcopy({"spec": seen["spec"]})
    put(changed, kind.suspend, False)
    if number is not None:
        _number(kind, changed, number)
    return {"spec": {name: changed["spec"][name] for name in {kind.suspend[1], kind.templates[1]}}}


def _number(kind: Kind, thing: Object, number: int) -> None:
    for template in _each(thing, kind.templates) if kind.templates else ():
        metadata = template.get("metadata") or {}
        template["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), ATTEMPT: str(number)}}


def ways(kind: Kind, fresh: Object, hosts: Sequence[str], children: Sequence[str] = ()) -> list[Object]:
    """The same job, kept off ``hosts``. Several manifests if versions of a kind write this differently; none if it is not
    possible.
    """
    if not kind.templates:
        return _trainjobs(fresh, hosts, children)
    if not hosts:
        return [fresh]
    changed = copy.deepcopy(fresh)
    templates = list(_each(changed, kind.templates))
    for template in templates:
        avoid(template.setdefault("spec", {}), hosts)
    return [changed] if templates else []


def _trainjobs(fresh: Object, hosts: Sequence[str], parts: Sequence[str]) -> list[Object]:
    """A TrainJob has no templates: it patches those of its runtime, part by part."""
    pods: Object = {}
    if number := attempt(fresh):
        pods["metadata"] = {"labels": {ATTEMPT: str(number)}}
    if hosts:
        avoid(pods.setdefault("spec", {}), hosts)
    if not pods:
        return [fresh]
    ours = "diagnose/executor"
    jobs = [{"name": part, "template": {"spec": {"template": pods}}} for part in parts]
    patch = {"manager": ours, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    patched, overridden = copy.deepcopy(fresh), copy.deepcopy(fresh)
    others = [one for one in patched["spec"].get("runtimePatches") or [] if at(one, "manager") != ours]
    patched["spec"]["runtimePatches"] = [*others, patch]
    overrides = overridden["spec"].setdefault("podTemplateOverrides", [])  # Kubeflow Trainer 2.1
    overrides.append({"targetJobs": [{"name": part} for part in parts], **pods})
    return [patched, overridden] if hosts else [patched, overridden, fresh]


def avoid(spec: Object, hosts: Sequence[str]) -> None:
    """Terms are alternatives, so each of them must exclude the hosts. A term without conditions matches nothing, and stays
    so.
    """
    node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [])
    meant = [term for term in terms if term.get("matchExpressions") or term.get("matchFields")]
    if not terms:
        terms.append({})
        meant = terms
    for term in meant:
        expressions = term.setdefault("matchExpressions", [])
        known = next((one for one in expressions if one.get("key") == _HOSTNAME and one.get("operator") == "NotIn"), None)
        if known is None:
            known = {"key": _HOSTNAME, "operator": "NotIn", "values": []}
            expressions.append(known)
        known["values"] = list(dict.fromkeys([*known["values"], *hosts]))


def _each(thing: Any, way: Sequence[str]) -> Iterator[Object]:
    if not way:
        if isinstance(thing, dict):
            yield thing
    elif way[0] == "*":
        for inner in list(thing.values()) if isinstance(thing, dict) else thing if isinstance(thing, list) else []:
            yield from _each(inner, way[1:])
    elif isinstance(thing, dict):
        yield from _each(thing.get(way[0]), way[1:])


def rehearsed(fresh: Object, key: str) -> Object:
    """The same job under a free name of the same length, to try it while the old one still exists."""
    name = str(fresh["metadata"]["name"])
    tail = hashlib.sha256(f"{key} {name}".encode()).hexdigest()[: max(1, min(6, len(name) - 1))]
    return {**fresh, "metadata": {**fresh["metadata"], "name": name[: len(name) - len(tail)] + tail}}
