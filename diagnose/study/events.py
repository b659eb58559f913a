"""Events of Kubernetes -> what they tell of pods that are gone: their job, their node, when they began and why they ended.

Kubernetes removes the pods of a job that is removed or retried, and keeps events for an hour. What the events mean:
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from diagnose.study.runs import State

Place = tuple[str, str]
"""namespace and name"""
_MADE: Final = re.compile(r"Created pod: (\S+)")
"""what the controller of jobs says of a job, and the training operator of its jobs"""
_ASSIGNED: Final = re.compile(r"Successfully assigned \S+ to (\S+)")
_PUT_OUT: Final[dict[str, State]] = {"Preempted": "preempted", "Evicted": "preempted", "TaintManagerEviction": "node_failure",
                                     "NodeNotReady": "node_failure"}  # fmt: skip
_TAKEN_BACK: Final = "Cancelling deletion"
"""the node of a pod came back in time"""


@dataclass(frozen=True, slots=True)
class PodEvents:
    """What the events tell of one pod."""

    name: str
    owner: str | None = None
    """the uid of its job: a later job may have the same name"""
    node: str | None = None
    placed: float | None = None
    """when it got its node"""
    state: State | None = None
    """how it was put out; None: nothing says so"""


def of_jobs(events: Iterable[Mapping[str, Any]]) -> dict[Place, list[PodEvents]]:
    """The pods of each job, in the order in which they were made."""
    about: dict[Place, list[Mapping[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=_at):
        subject = _subject(event)
        about[str(subject.get("namespace")), str(subject.get("name"))].append(event)
    found: dict[Place, list[PodEvents]] = {}
    for (space, job), told in about.items():
        pods = dict(_made(told))
        if pods:
            found[space, job] = [_pod(name, owner, about.get((space, name), ())) for name, owner in pods.items()]
    return found


def _made(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """(name of a pod, uid of its job)"""
    for event in events:
        if (made := _MADE.match(_said(event))) is not None:
            yield made[1], _subject(event).get("uid")


def _subject(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return event.get("involvedObject") or event.get("regarding") or {}


def _pod(name: str, owner: str | None, events: Iterable[Mapping[str, Any]]) -> PodEvents:
    node = placed = state = None
    for event in events:
        reason, said = str(event.get("reason")), _said(event)
        if reason == "Scheduled" and (assigned := _ASSIGNED.match(said)) is not None:
            node, placed = assigned[1], _at(event) or None
        elif reason == "TaintManagerEviction" and said.startswith(_TAKEN_BACK):
            state = None
        elif reason in _PUT_OUT:
            state = state or _PUT_OUT[reason]
    return PodEvents(name, owner, node, placed, state)


def _said(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or event.get("note") or "")


def _at(event: Mapping[str, Any]) -> float:
    """When it was; 0 if it does not say so."""
    for place in ("lastTimestamp", "eventTime", "deprecatedLastTimestamp"):
        if isinstance(event.get(place), str):
            return datetime.fromisoformat(event[place]).timestamp()
    made = event["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(made).timestamp() if isinstance(made, str) else 0.0
