"""What finders of faulty nodes send -> findings: events of Kubernetes, NVSentinel's events, gpud's states, DCGM's policies.

Their forms are those of the programs' own sources: core/v1 Event, ``event-exporter`` of NVSentinel, ``api/v1`` of gpud, ``dcgmi
policy`` of DCGM. What is not used is left aside. What a finder itself calls the work of a job is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from diagnose.decision.history import NodeFinding
from service.acting.findings import KUBERNETES, LONGEST_NAME, NAME, NODE, Found, When, add, over, seconds

NVSENTINEL, GPUD, DCGM = "nvsentinel", "gpud", "dcgm"
_OF_JOBS = frozenset({"SystemOOM", "OOMKilling", "EvictionThresholdMet", "FreeDiskSpaceFailed", "ImageGCFailed"})
"""warnings about a node that are the work of what runs on it"""
_NOT_THE_NODE = frozenset({"IGNORE_NO_ACTION_REQUIRED", "CHECK_USER_APP_AND_GPU"})
_RESTART_APP = (39, "39", "RESTART_APP")
"""what NVSentinel recommends if only the program has to start again: its exporter gives the number"""
_SAYS_RESTART_APP = re.compile(r"Recommended ?Action[:=] ?RESTART_APP;?$")
"""the same at the end of the message of its event"""
_LONGEST_END = 60
"""characters at the end of a message that are looked at"""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NAME)]
NodeName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NODE)]
Words = Annotated[str, Field(max_length=100_000)]


# --- Kubernetes


class Involved(BaseModel):
    """What an event is about."""

    kind: str = Field(max_length=LONGEST_NAME)
    name: str = Field(max_length=1000)


class KubernetesEvent(BaseModel):
    """An event, as the API of Kubernetes shows it (core/v1)."""

    model_config = ConfigDict(populate_by_name=True)
    involved: Involved = Field(alias="involvedObject")
    type: str = Field(default="Normal", max_length=LONGEST_NAME)
    reason: str = Field(default="", max_length=1000)
    message: Words | None = None
    first: When | None = Field(default=None, alias="firstTimestamp")
    last: When | None = Field(default=None, alias="lastTimestamp")
    at: When | None = Field(default=None, alias="eventTime")


class KubernetesEvents(BaseModel):
    """``kubectl get events -A -o json``."""

    items: list[KubernetesEvent] = Field(max_length=5_000)


def of_events(events: Sequence[KubernetesEvent], now: float) -> Found:
    """Warnings about nodes. An event tells of a moment, so it is over when it was last seen."""
    found = Found()
    for event in events:
        if event.involved.kind != "Node" or event.type == "Normal" or event.reason in _OF_JOBS:
            continue
        if _SAYS_RESTART_APP.search((event.message or "").rstrip()[-_LONGEST_END:]):
            continue
        # NVSentinel gives the name of its check as the type; the reason then only says that it warns.
        name = event.reason if event.type == "Warning" else event.type
        last = event.last or event.at or event.first
        if last is None or not name:
            found.leave_out("the event has no time or no reason")
            continue
        ended = min(seconds(last), now)
        began = min(seconds(event.first), ended) if event.first is not None else ended
        add(found, NodeFinding(event.involved.name, began, KUBERNETES, name, ended), event.message)
    return found


# --- NVSentinel


class HealthEvent(BaseModel):
    """A health event of NVSentinel."""

    model_config = ConfigDict(populate_by_name=True)
    node: NodeName = Field(alias="nodeName")
    check: Name = Field(alias="checkName")
    fatal: Annotated[bool, Field(strict=True)] = Field(default=False, alias="isFatal")
    healthy: Annotated[bool, Field(strict=True)] = Field(default=False, alias="isHealthy")
    message: Words | None = None
    codes: list[Annotated[str, Field(max_length=LONGEST_NAME)]] = Field(default=[], alias="errorCode", max_length=1000)
    action: Annotated[int, Field(strict=True)] | Annotated[str, Field(max_length=LONGEST_NAME)] | None = Field(
        default=None, alias="recommendedAction"
    )
    at: When = Field(alias="generatedTimestamp")


class HealthData(BaseModel):
    health: HealthEvent = Field(alias="healthEvent")


class NVSentinelEvent(BaseModel):
    """The CloudEvent that NVSentinel's event exporter posts for each health event."""

    specversion: Literal["1.0"] = "1.0"
    type: Literal["com.nvidia.nvsentinel.health.v1"]
    data: HealthData


def of_health(event: NVSentinelEvent, now: float) -> Found:
    """A fault lasts until its check is healthy again; what is not fatal is told of a moment. What only a program has to start
    again for says nothing of the node.
    """
    found, health = Found(), event.data.health
    at = min(seconds(health.at), now)
    if health.healthy:
        over(found, NodeFinding(health.node, at, NVSENTINEL, health.check))
        return found
    if health.action in _RESTART_APP:
        return found
    codes = f"[{', '.join(health.codes)}]" if health.codes else ""
    ended = None if health.fatal else at
    add(found, NodeFinding(health.node, at, NVSENTINEL, health.check, ended), f"{codes} {health.message or ''}".strip() or None)
    return found


# --- gpud


class Suggested(BaseModel):
    repair_actions: list[Annotated[str, Field(max_length=LONGEST_NAME)]] | None = Field(default=None, max_length=100)


class HealthState(BaseModel):
    """A state of a component."""

    time: When | None = None
    """null is Go's zero: not yet"""
    health: str = Field(default="", max_length=LONGEST_NAME)
    reason: Words | None = None
    error: Words | None = None
    suggested_actions: Suggested | None = None


class ComponentStates(BaseModel):
    """A component of gpud with its states."""

    component: Name
    states: list[HealthState] | None = Field(default=None, max_length=1000)


def of_states(node: str, components: Sequence[ComponentStates], now: float) -> Found:
    """``GET /v1/states`` of gpud. Degraded is, in its words, what does not affect the work: neither a finding nor its end."""
    found = Found()
    for one in components:
        states = one.states or []
        bad = [state for state in states if state.health == "Unhealthy" and not _of_a_job(state)]
        if bad:
            first = min([seconds(state.time) for state in bad if state.time is not None], default=now)
            at = min(first, now)
            add(found, NodeFinding(node, at, GPUD, one.component), bad[0].reason or bad[0].error)
        elif states and all(state.health == "Healthy" for state in states):
            last = max([seconds(state.time) for state in states if state.time is not None], default=now)
            over(found, NodeFinding(node, min(last, now), GPUD, one.component))
    return found


def _of_a_job(state: HealthState) -> bool:
    actions = state.suggested_actions.repair_actions if state.suggested_actions is not None else None
    return bool(actions) and _NOT_THE_NODE.issuperset(actions or ())


# --- DCGM

_VIOLATIONS = {
    "A double-bit ECC error has": "DoubleBitECC",
    "A PCIe replay event has": "PCIeReplay",
    "A PCIe error has": "PCIeReplay",
    "The maximum number of retired pages has": "RetiredPages",
    "The maximum thermal limit has": "Thermal",
}
"""by how the sentence begins; a limit of power is reached by a job that works"""
_COUNTED = re.compile(
    r"(?:DBE error count|PCIe replay count|[SD]BE page retirement count|Temperature|NVLink Counter value): \d+$"
)
_NVLINK = re.compile(r"NVLink Counter (\d+) has violated policy manager values")
_XID = re.compile(r"XID error (\d+) detected")
_OF_PROGRAMS = frozenset((13, 31, 43, 45, 69, 80, 108, 137, 159))
"""Xids that a program causes, and the one of tidying up behind it"""


class PolicyEvents(BaseModel):
    """Lines that ``dcgmi policy --reg`` printed since the last time."""

    lines: list[Annotated[str, Field(max_length=1000)]] = Field(max_length=1000)


def of_policies(node: str, lines: Sequence[str], now: float) -> Found:
    """Each violation is of the moment when it is told: the clock that DCGM prints has no zone."""
    found = Found()
    told: list[tuple[str, list[str]]] = []
    for line in map(str.strip, lines):
        if (name := _violation(line)) is not None:
            told.append((name, [line]))
        elif told and _COUNTED.match(line):
            told[-1][1].append(line)
        elif "has violated policy manager values" in line or _XID.match(line):
            found.leave_out("a job can be the cause of it")
    for name, words in told:
        add(found, NodeFinding(node, now, DCGM, name, now), " ".join(words))
    return found


def _violation(line: str) -> str | None:
    """What a line names, if it is a violation that speaks against the node."""
    if (xid := _XID.match(line)) is not None:
        return f"Xid{int(xid[1])}" if int(xid[1]) not in _OF_PROGRAMS else None
    if (link := _NVLINK.match(line)) is not None:
        return f"NVLink{int(link[1])}"
    if "has violated policy manager values" not in line:
        return None
    return next((name for begins, name in _VIOLATIONS.items() if line.startswith(begins)), None)
