"""What a decision looks back on: the attempts of a job, what failed elsewhere, what was done, and how the nodes are.

Values only, made by whoever keeps them (the service's store, a file, a simulation). Times are seconds since 1970, steps
those of the training. What is not known is None or empty, and a decision is the more careful for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from diagnose.decision.ending import Ending
from diagnose.errors import DiagnoseError

NodeState = Literal["ok", "suspect", "isolated", "gone"]
CheckResult = Literal["good", "slow", "suspect", "faulty"]


class _Value:
    __slots__ = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    """a misspelt field in a file is an error, and is not ignored"""


@dataclass(frozen=True, slots=True)
class PastAttempt(_Value):
    """One run of a job, up to its end."""

    number: int
    started: float
    ended: float | None = None
    reason: str | None = None
    """why it failed; None: it did not, or nobody knows"""
    group: str | None = None
    phase: str | None = None
    by: str = "rule"
    """who said so: rule, detector, agent"""
    nodes: tuple[str, ...] = ()
    """those that it ran on"""
    suspects: tuple[str, ...] = ()
    """nodes that its diagnosis named"""
    first_step: float | None = None
    last_step: float | None = None
    progress_s: float | None = None
    """for how long its steps moved; None: from the steps nobody can tell"""


@dataclass(frozen=True, slots=True)
class Failure(_Value):
    """A failed attempt of any job, this one included."""

    job: str
    attempt: int
    at: float
    reason: str
    group: str | None = None
    by: str = "rule"
    suspects: tuple[str, ...] = ()
    subject: str | None = None
    """the job, as the scheduler calls it: what a sender calls it may change"""
    culprits: tuple[str, ...] = ()
    """those of the suspects that a machine's fault named itself"""
    user: str | None = None
    workload: str | None = None
    """the kind of job, the same when it is submitted again"""


@dataclass(frozen=True, slots=True)
class PastAction(_Value):
    """An action that was decided before, of any job, and how it went."""

    key: str
    job: str
    attempt: int
    kind: str
    state: str
    """as in ``diagnose.action``"""
    at: float
    """when it was decided"""
    nodes: tuple[str, ...] = ()
    ended: float | None = None
    reason: str | None = None
    incident: str | None = None
    restart_step: int | None = None
    skip: tuple[int, int] | None = None
    taken: bool = False
    """an executor had the action: if it expired then, nobody knows what was done"""
    owner: str | None = None
    """project and owner, by the scheduler's word"""
    subject: str | None = None
    said: str | None = None
    """what its executor said of a hold, with the command that lets the job go"""


@dataclass(frozen=True, slots=True)
class Checkpoint(_Value):
    """A checkpoint that was saved."""

    step: int
    path: str | None = None
    at: float | None = None
    complete: bool = True
    """False: its begin is known, its end is not"""
    told_by: Literal["log", "api"] = "log"
    healthy: bool | None = None
    """False: the training says that it is spoilt; None: nobody said"""
    doubt: str | None = None
    """why another one is better to go back to"""


@dataclass(frozen=True, slots=True)
class History(_Value):
    """What is known of a job, and of what else failed and was done lately."""

    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None
    nodes: tuple[str, ...] = ()
    """of the attempt that is decided about; empty: unknown"""
    started: float | None = None
    ended: float | None = None
    """of that attempt"""
    first_step: float | None = None
    progress_s: float | None = None
    """of that attempt: for how long its steps moved"""
    attempts: tuple[PastAttempt, ...] = ()
    """those before, oldest first"""
    failures: tuple[Failure, ...] = ()
    actions: tuple[PastAction, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    name: str | None = None
    """of the job, as its own people call it; None: as its report does"""
    unconfirmed: str | None = None
    """why it is not certain that the log is that of the job which an action would touch; None: it is, or nobody was asked"""
    believed: tuple[str, ...] | None = None
    """nodes that the log may speak against; None: all"""
    owner: str | None = None
    subject: str | None = None
    user: str | None = None
    workload: str | None = None
    """the kind of job, as in ``Failure``"""
    ending: Ending | None = None
    """of that attempt, in the scheduler's words; None: nobody was asked, or it is not over"""


@dataclass(frozen=True, slots=True)
class NodeCheck(_Value):
    """What a node check said of a node."""

    node: str
    at: float
    result: CheckResult


KERNEL_WATCH = "kernel-watch"
"""the source of findings that are lines of the node's own kernel"""


@dataclass(frozen=True, slots=True)
class NodeFinding(_Value):
    """What somebody else found of a node: an alert, a condition of Kubernetes."""

    node: str
    at: float
    """since when"""
    source: str
    """who found it: alertmanager, kubernetes"""
    name: str
    ended: float | None = None
    """None: it is not over"""


@dataclass(frozen=True, slots=True)
class Isolation(_Value):
    """A node was taken out of service, by an action of ours or by a person."""

    node: str
    at: float
    by: str = "decision"
    """``decision``, or the name of a person"""
    key: str | None = None
    """of the action"""
    released: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster(_Value):
    """How the nodes are."""

    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    size: int | None = None
    """how many there are, by the scheduler or an administrator; 0: nobody knows; None: as many as are named"""
    isolations: tuple[Isolation, ...] = ()
    checks: tuple[NodeCheck, ...] = ()
    findings: tuple[NodeFinding, ...] = ()

    @property
    def count(self) -> int:
        """How many nodes there are; 0 if that is not known."""
        return len(self.nodes) if self.size is None else self.size

    def isolated(self) -> set[str]:
        return {node for node, state in self.nodes.items() if state == "isolated"}


def latest_check(cluster: Cluster, node: str, after: float, now: float) -> NodeCheck | None:
    """The last check of a node in a stretch of time."""
    found = [check for check in cluster.checks if check.node == node and after <= check.at <= now]
    return max(found, key=lambda check: check.at, default=None)


@dataclass(frozen=True, slots=True)
class Situation(_Value):
    """All that a decision needs besides the report and the policy, as one file."""

    now: float | None = None
    history: History = field(default_factory=History)
    cluster: Cluster | None = None


def situation(text: str, where: str) -> Situation:
    """The situation in a JSON file: the names of this module's fields, times as seconds since 1970."""
    import pydantic  # it takes a while to import, and is seldom needed

    try:
        return pydantic.TypeAdapter(Situation).validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DiagnoseError(
            f"{place + ': ' if place else ''}{first['msg'][0].lower()}{first['msg'][1:]}",
            where=where,
            remedy="use the fields now, history and cluster, as docs/policy.md describes",
        ) from None
