"""What others found of nodes -> findings: Alertmanager's webhooks, and nodes as Kubernetes shows them.

A finding is evidence about a node: an alert that fires, a condition that a node problem detector or NVSentinel has set. It is a
weak signal (``diagnose.decision.signals``), isolates nothing alone, and comes from who may speak for the node only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from diagnose.decision.history import NodeFinding
from diagnose.redaction.text import redact
from service.acting.executors.kubernetes_nodes import REASON
from service.errors import Forbidden, Refused
from service.names import storable
from service.projects import Grant

ALERTMANAGER, KUBERNETES = "alertmanager", "kubernetes"
LONGEST_NAME, _LONGEST_WORDS = 200, 500
NAME, NODE = "^[A-Za-z0-9][-A-Za-z0-9_./]*$", "^[A-Za-z0-9][-A-Za-z0-9_.]*$"
_NODE_LABELS = ("node", "nodename", "node_name", "kubernetes_node", "Hostname", "hostname", "host", "exported_hostname")
_PRESSURE = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""what a node's load does to it, and its setting up"""
_OWN = "diagnose"
"""how names begin that only repeat what we say of a node: by our own condition, or by somebody who watches it"""
_NOBODY = "0001-01-01T00:00:00Z"
"""Go's zero: not yet"""


def _written(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a time is a text such as 2026-11-24T12:00:00Z")
    return value


When = Annotated[datetime, BeforeValidator(_written)]


class Alert(BaseModel):
    """One alert of a webhook. What is not used is left aside."""

    model_config = ConfigDict(populate_by_name=True)
    status: str = Field(max_length=40)
    labels: dict[str, str] = Field(default={}, max_length=200)
    annotations: dict[str, str] = Field(default={}, max_length=200)
    starts_at: When = Field(alias="startsAt")
    ends_at: str | None = Field(default=None, alias="endsAt", max_length=60)


class AlertmanagerWebhook(BaseModel):
    """The body of Alertmanager's webhook receiver, version 4."""

    version: str = Field(default="4", pattern="^4$")
    alerts: list[Alert] = Field(max_length=10_000)


class Condition(BaseModel):
    """A condition of a node."""

    type: str = Field(max_length=LONGEST_NAME, pattern=NAME)
    status: str = Field(max_length=40)
    reason: str | None = Field(default=None, max_length=1000)
    message: str | None = Field(default=None, max_length=100_000)
    last_transition: When | None = Field(default=None, alias="lastTransitionTime")
    model_config = ConfigDict(populate_by_name=True)


class _Meta(BaseModel):
    name: str = Field(min_length=1, max_length=LONGEST_NAME, pattern=NODE)


class _Status(BaseModel):
    conditions: list[Condition] = Field(default=[], max_length=1000)


class KubernetesNode(BaseModel):
    """A node, as the API of Kubernetes shows it. What is not used is left aside."""

    metadata: _Meta
    status: _Status = _Status()


class KubernetesNodes(BaseModel):
    """``kubectl get nodes -o json``."""

    items: list[KubernetesNode] = Field(max_length=5_000)


@dataclass(slots=True)
class Found:
    """What a body told."""

    findings: list[tuple[NodeFinding, str | None]] = field(default_factory=list)
    over: list[NodeFinding] = field(default_factory=list)
    """what does not hold since its time"""
    left_out: int = 0
    why: str | None = None

    def leave_out(self, why: str) -> None:
        self.left_out += 1
        self.why = self.why or why


def of_alerts(body: AlertmanagerWebhook, now: float) -> Found:
    """Alerts that name a node. Others are left out, and counted."""
    found = Found()
    for alert in body.alerts:
        node, name = _node_of(alert.labels), alert.labels.get("alertname", "")
        if node is None or not name:
            found.leave_out(f"no label names the node; Prometheus knows it as one of {', '.join(_NODE_LABELS)} or instance")
            continue
        at = min(seconds(alert.starts_at), now)
        ended = _ended(alert, now) if alert.status == "resolved" else None
        said = alert.annotations.get("summary") or alert.annotations.get("description") or alert.annotations.get("message")
        add(found, NodeFinding(node, at, ALERTMANAGER, name, ended), said)
    return found


def of_nodes(nodes: Sequence[KubernetesNode], now: float) -> Found:
    """Conditions that say that something is wrong with a node; those that say the opposite end what was found before."""
    found = Found()
    for node in nodes:
        for one in node.status.conditions:
            if one.type in _PRESSURE or one.reason == REASON:
                continue
            at = min(seconds(one.last_transition), now) if one.last_transition is not None else now
            bad = one.status != "True" if one.type == "Ready" else one.status == "True"
            said = ": ".join(text for text in (one.reason, one.message) if text) or None
            finding = NodeFinding(node.metadata.name, at, KUBERNETES, one.type)
            if bad:
                add(found, finding, said)
            else:
                over(found, finding)
    return found


def check_may_tell(found: Found, grant: Grant | None, *, administrator: bool) -> None:
    """Raise Forbidden if the sender may not speak of one of the nodes: only a node's own token and an administrator's may."""
    if administrator:
        return
    for one in (*(one for one, _ in found.findings), *found.over):
        if grant is None or not grant.kernel or not grant.may_accuse(one.node):
            raise not_told_by(one.node)


def not_told_by(where: str) -> Forbidden:
    """The refusal."""
    return Forbidden(
        "only a node's own token, or an administrator's, tells what was found of it",
        where=where,
        remedy="diagnose tokens create NAME --role node --node PATTERN",
    )


def _checked(finding: NodeFinding) -> NodeFinding:
    if len(finding.node) > LONGEST_NAME or len(finding.name) > LONGEST_NAME or not finding.node.isprintable():
        raise Refused("this is not the name of a node or of an alert", where=finding.node[:80], remedy="use shorter names")
    storable(finding.node, "node")
    storable(finding.name, "name")
    return finding


def over(found: Found, finding: NodeFinding) -> None:
    """Enter that it does not hold any more, since the time of ``finding``."""
    if not _own(finding):
        found.over.append(_checked(finding))


def add(found: Found, finding: NodeFinding, said: str | None) -> None:
    """Enter it, with what was said of it."""
    if _own(finding):
        return
    words = redact(said[:_LONGEST_WORDS].replace("\0", "\ufffd")).text if said else None
    found.findings.append((_checked(finding), words))


def _own(finding: NodeFinding) -> bool:
    """Whether it is our own word that comes back: an isolation must not become the evidence for itself."""
    return finding.name.rpartition("/")[2].lower().startswith(_OWN)


def _node_of(labels: Mapping[str, str]) -> str | None:
    for name in _NODE_LABELS:
        if labels.get(name):
            return labels[name]
    instance = labels.get("instance", "")
    if instance.startswith("["):
        return instance[1:].partition("]")[0] or None
    return instance.rpartition(":")[0] or instance or None


def seconds(when: datetime) -> float:
    """Since 1970; a time without a zone is in UTC."""
    return max(0.0, (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp())


def _ended(alert: Alert, now: float) -> float:
    if alert.ends_at and alert.ends_at != _NOBODY:
        try:
            return min(seconds(datetime.fromisoformat(alert.ends_at)), now)
        except ValueError:
            pass
    return now


def told(found: Found) -> dict[str, Any]:
    """For the answer."""
    return {"taken": len(found.findings), "left_out": found.left_out, "why": found.why}
