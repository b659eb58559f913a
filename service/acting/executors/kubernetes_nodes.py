"""Nodes of Kubernetes as values: by what one is isolated, what of that is ours, and how exactly that is taken back.

Nothing here talks to a cluster. A node that is isolated has our key in an annotation, and in another what its labels and its
condition were before. What somebody has changed since then is theirs, and stays.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from service.acting.executors.kubernetes_api import Object
from service.acting.executors.kubernetes_jobs import annotation, at, mapping

TAINT: Final = "diagnose/isolated"
ISOLATED_BY: Final = "diagnose/isolated-by"
ISOLATED_WHY: Final = "diagnose/isolated-why"
CORDONED: Final = "diagnose/cordoned"
"""whether the cordon is ours; an isolation without a cordon does not have it"""
ISOLATED_WITH: Final = "diagnose/isolated-with"
"""JSON: {"labels": {KEY: [ours, before]}, "condition": [TYPE, before]}"""
REASON: Final = "IsolatedByDiagnose"
"""of the condition: what tells it from the findings of others"""
_KEY = re.compile(r"(?:(?P<domain>[a-z0-9](?:[-a-z0-9.]{0,250}[a-z0-9])?)/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_OF_THE_KUBELET: Final = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_RESERVED: Final = ("kubernetes.io", "k8s.io")


@dataclass(frozen=True, slots=True)
class Ways:
    """By what a node is isolated."""

    cordon: bool = True
    taint: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    condition: str | None = None
    """a type of condition, True while the node is isolated"""

    @property
    def keep_off(self) -> bool:
        """Whether the scheduler itself places nothing there any more. A label or a condition tells others only."""
        return self.cordon or self.taint


def wrong_label(key: str, value: str) -> str | None:
    """Why it cannot be a label of ours, if so."""
    found = _KEY.fullmatch(key)
    if found is None or not _VALUE.fullmatch(value):
        return f"{key[:80]}: {value[:80]} is no label"
    domain = found["domain"] or ""
    if any(domain == one or domain.endswith(f".{one}") for one in _RESERVED):
        return f"{key} is a label of Kubernetes itself"
    return None


def wrong_condition(kind: str) -> str | None:
    """Why it cannot be a condition of ours, if so."""
    if not _KEY.fullmatch(kind):
        return f"{kind[:80]!r} is no type of a condition"
    return f"{kind} is the kubelet's own condition" if kind in _OF_THE_KUBELET else None


# --- what is ours


def cordoned(node: Object) -> bool:
    return at(node, "spec", "unschedulable") is True


def taints(node: Object) -> list[Any]:
    return [one for one in at(node, "spec", "taints") or [] if isinstance(one, dict)]


def marked(node: Object) -> bool:
    """Whether there is anything of ours to take back."""
    return _tainted(node) or annotation(node, ISOLATED_BY) is not None


def out(node: Object) -> bool:
    """Whether it is isolated by us: our marks alone say nothing if somebody has taken back what they stand for."""
    if _tainted(node):
        return True
    if annotation(node, ISOLATED_BY) is None:
        return False
    if annotation(node, CORDONED) is not None and cordoned(node):
        return True
    labels, condition = _with(node)
    if any(mapping(node, "metadata", "labels").get(key) == ours for key, (ours, _) in labels.items()):
        return True
    return condition is not None and _ours(node, condition[0]) is not None


def condition_of(node: Object) -> tuple[str, Object | None] | None:
    """(the type of our condition, what was there before)."""
    return _with(node)[1]


def _tainted(node: Object) -> bool:
    return any(one.get("key") == TAINT for one in taints(node))


def _with(node: Object) -> tuple[dict[str, tuple[str, str | None]], tuple[str, Object | None] | None]:
    """What our annotation says. One that nobody can read says nothing."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        told = json.loads(annotation(node, ISOLATED_WITH) or "{}")
        labels = {str(key): (str(ours), before) for key, (ours, before) in (told.get("labels") or {}).items()}
        kind, before = told.get("condition") or (None, None)
        return labels, (str(kind), before if isinstance(before, dict) else None) if kind is not None else None
    return {}, None


def _conditions(node: Object) -> Iterator[Object]:
    listed = at(node, "status", "conditions")
    yield from (one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict))


def _condition(node: Object, kind: str) -> Object | None:
    return next((one for one in _conditions(node) if one.get("type") == kind), None)


def _ours(node: Object, kind: str) -> Object | None:
    found = _condition(node, kind)
    return found if found is not None and found.get("reason") == REASON else None


# --- changes, as merge patches


def isolation(ways: Ways, node: Object, key: str, why: str) -> Object:
    """The patch that isolates it. The condition is a patch of its own, as it is in the status."""
    notes: dict[str, Any] = {ISOLATED_BY: key, ISOLATED_WHY: why, CORDONED: None, ISOLATED_WITH: None}
    spec: Object = {}
    if ways.cordon:
        notes[CORDONED] = "false" if cordoned(node) else "true"
        spec["unschedulable"] = True
    if ways.taint:
        spec["taints"] = [*taints(node), {"key": TAINT, "effect": "NoSchedule"}]
    told: Object = {}
    if ways.labels:
        had = mapping(node, "metadata", "labels")
        told["labels"] = {name: [value, had.get(name)] for name, value in ways.labels.items()}
    if ways.condition is not None:
        before = _condition(node, ways.condition)
        if before is None or before.get("status") != "True":  # else others say so already, and it stays theirs
            told["condition"] = [ways.condition, before]
    if told:
        notes[ISOLATED_WITH] = json.dumps(told)
    return {"spec": spec, "metadata": {"annotations": notes, **({"labels": dict(ways.labels)} if ways.labels else {})}}


def release(node: Object) -> Object:
    """The patch that takes back all but the condition."""
    spec: Object = {"taints": [one for one in taints(node) if one.get("key") != TAINT] or None}
    if annotation(node, CORDONED) == "true":
        spec["unschedulable"] = None
    has = mapping(node, "metadata", "labels")
    labels = {key: before for key, (ours, before) in _with(node)[0].items() if has.get(key) == ours}
    notes = dict.fromkeys((ISOLATED_BY, ISOLATED_WHY, CORDONED, ISOLATED_WITH))
    return {"spec": spec, "metadata": {"annotations": notes, **({"labels": labels} if labels else {})}}


def told(node: Object, kind: str, why: str) -> Object | None:
    """The patch of its status that gives it the condition; None if it has it."""
    if _ours(node, kind) is not None:
        return None
    now = _now()
    fresh = {"type": kind, "status": "True", "reason": REASON, "message": why}
    return _put(node, kind, {**fresh, "lastHeartbeatTime": now, "lastTransitionTime": now})


def untold(node: Object, kind: str, before: Object | None) -> Object | None:
    """The patch of its status that takes the condition back; None if it is not ours any more."""
    if _ours(node, kind) is None:
        return None
    now = _now()
    return _put(node, kind, {**before, "lastHeartbeatTime": now, "lastTransitionTime": now} if before is not None else None)


def _put(node: Object, kind: str, fresh: Object | None) -> Object:
    """A merge patch replaces the whole list, so it goes with the version that was read."""
    others = [one for one in _conditions(node) if one.get("type") != kind]
    return {"status": {"conditions": [*others, *([fresh] if fresh is not None else [])]}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- in words


def done(ways: Ways, node: Object) -> str:
    """What the isolation does, so that the node's name can follow."""
    was = cordoned(node)
    verbs = ["cordoned"] if ways.cordon and not was else []
    verbs += ["tainted"] if ways.taint else []
    verbs += ["labelled"] if ways.labels else []
    if ways.condition is not None:
        verbs.append(f"set the condition {ways.condition} of")
    said = " and ".join(filter(None, (", ".join(verbs[:-1]), *verbs[-1:]))) or "marked"
    return f"{said} the cordoned" if ways.cordon and was else said
