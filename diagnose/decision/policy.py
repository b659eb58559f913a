"""What may be done, how often and with whose approval: ``rules/policy.yaml``, and a site's file laid over it.

Each value knows its file and line. So a decision can name the line that made it, and a mistake the line to correct.
``policy_file`` reads it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from diagnose.decision.clauses import Mode
from diagnose.decision.quiet_hours import QuietHours
from diagnose.decision.written import (
    IN_FILE,
    LINES,
    LIST,
    TABLE,
    Approvers,
    Confidence,
    Duration,
    Flag,
    Labels,
    Modes,
    Numbers,
    OneMode,
    Place,
    Reason,
    ReasonOrDefault,
    Reasons,
    Share,
    Text,
    Words,
    at_least,
    objection,
)

ISOLATE, RELEASE, CHECK, REBOOT = "isolate", "release", "check", "reboot"
"""decisions about a single node, besides the actions of the taxonomy: take it out, give it back, test it, reboot it"""
HOLD = "hold"
"""what goes with the advice to mend the job: its controller is kept from starting it again"""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The usual action for a reason, with the sentence that says why."""

    __pydantic_config__ = IN_FILE
    kind: Text
    why: Text
    where: Place = ""
    check_nodes: Flag = False
    """the job's nodes are tested against each other before it starts again"""
    reboot: Flag = False
    """a node that was isolated for it is rebooted; it stays isolated"""


@dataclass(frozen=True, slots=True)
class Budget:
    """How often one cause is answered with a restart."""

    __pydantic_config__ = IN_FILE
    attempts: Annotated[int, at_least(0)]
    within_s: Duration
    backoff_s: Duration
    backoff_most_s: Duration
    at_startup: Annotated[int, at_least(1)]
    """after so many equal failures before the first step, attempts end"""
    progress_s: Duration
    """an attempt that made steps for so long starts the count again"""
    where: Place = ""


Remedies = Annotated[Mapping[Reason, Remedy], TABLE]
Budgets = Annotated[Mapping[ReasonOrDefault, Budget], TABLE]


@dataclass(frozen=True, slots=True)
class Limits:
    """The blast radius."""

    __pydantic_config__ = IN_FILE
    isolations_per_hour: Annotated[int, at_least(0)]
    isolated_share: Share
    nodes_at_once: Annotated[int, at_least(0)]
    restarts_per_day: Annotated[int, at_least(0)]
    job_cool_down_s: Duration
    node_cool_down_s: Duration
    isolations_of_a_node: Annotated[int, at_least(1)]
    isolated_at_least: Annotated[int, at_least(0)] = 0
    """so many may be out, however small the share is"""
    small_cluster_from: Annotated[int, at_least(2)] = 4
    """on clusters of at least so many nodes"""
    cluster_nodes: Annotated[int, at_least(0)] = 0
    """how many there are, if no scheduler says so; 0: nobody has said"""
    restarts_of_owner: Annotated[int, at_least(0)] = 500
    """in a day"""
    after_time_limit: Annotated[int, at_least(0)] = 0
    """restarts of a job in a day"""
    checks_per_hour: Annotated[int, at_least(0)] = 0
    """tests of nodes that are doubted, in the whole cluster; 0: nobody orders any"""
    never: Words = ()


def _more_than_one(needed: int) -> int:
    if needed < 2:
        raise objection("one signal alone would isolate a node", "say 2 or more: a single diagnosis may be wrong")
    return needed


@dataclass(frozen=True, slots=True)
class Signals:
    """What speaks against a node, and how much of it is needed."""

    __pydantic_config__ = IN_FILE
    needed: Annotated[int, at_least(1), AfterValidator(_more_than_one)]
    within_s: Duration
    named_most: Annotated[int, at_least(1)]
    check_within_s: Duration
    strong_xids: Numbers = frozenset()
    kernel_sources: Words = ()


def _not_shorter(hold_most_s: float, info: ValidationInfo) -> float:
    if hold_most_s < info.data.get("hold_s", 0.0):
        raise objection("is shorter than hold", "make it as long or longer")
    return hold_most_s


def _in_one_family(families: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    named: dict[str, str] = {}
    for family, reasons in families.items():
        for reason in reasons:
            if named.setdefault(reason, family) != family:
                raise objection(
                    f"{reason} is in two families, {named[reason]} and {family}", "a failure belongs to one incident"
                )
    return families


@dataclass(frozen=True, slots=True)
class Bursts:
    """When many failures are one incident."""

    __pydantic_config__ = IN_FILE
    jobs: Annotated[int, at_least(2)]
    within_s: Duration
    hold_s: Duration
    hold_most_s: Annotated[Duration, AfterValidator(_not_shorter)]
    families: Annotated[Mapping[str, Reasons], TABLE, AfterValidator(_in_one_family)] = field(default_factory=dict)
    """reasons that are counted as one"""

    def family(self, reason: str) -> str:
        """The family in which a reason is counted."""
        return next((name for name, reasons in self.families.items() if reason in reasons), reason)


@dataclass(frozen=True, slots=True)
class Rollback:
    """Where to go on, and what to leave out."""

    __pydantic_config__ = IN_FILE
    back_share: Share
    back_least: Annotated[int, at_least(0)]
    skip_most: Annotated[int, at_least(1)]
    same_step: Annotated[int, at_least(0)]
    """so many steps apart counts as the same place in the data"""


@dataclass(frozen=True, slots=True)
class Alarms:
    """What is done about a job that still runs."""

    __pydantic_config__ = IN_FILE
    lasts_s: Duration
    """an alarm must last so long before anything is done"""


@dataclass(frozen=True, slots=True)
class LifeSpans:
    """How long an action may wait and run."""

    __pydantic_config__ = IN_FILE
    approve_within_s: Duration
    start_within_s: Duration
    lease_s: Duration
    claims: Annotated[int, at_least(1)]


@dataclass(frozen=True, slots=True)
class Match:
    """Which jobs belong to a class. Missing conditions are always met."""

    __pydantic_config__ = IN_FILE
    job: Text | None = None
    labels: Labels = field(default_factory=dict)
    gpus_at_least: Annotated[int, at_least(1)] | None = None

    def fits(self, job: str, labels: Mapping[str, str], gpus: int | None) -> bool:
        """Whether a job belongs to it. If the number of GPUs is unknown, it does not have enough."""
        if self.job is not None and not fnmatch.fnmatchcase(job, self.job):
            return False
        if any(not fnmatch.fnmatchcase(labels.get(name, ""), pattern) for name, pattern in self.labels.items()):
            return False
        return self.gpus_at_least is None or (gpus is not None and gpus >= self.gpus_at_least)


@dataclass(frozen=True, slots=True)
class JobClass:
    """What differs for some jobs."""

    __pydantic_config__ = IN_FILE
    name: Text
    match: Match
    where: Place
    mode: OneMode | None = None
    modes: Modes = field(default_factory=dict)
    actions: Remedies = field(default_factory=dict)
    budgets: Budgets = field(default_factory=dict)
    approvers: Approvers = field(default_factory=dict)
    confidence: Confidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A mode, and the line of the policy that sets it."""

    mode: Mode
    clause: str
    """such as ``modes.restart`` or ``classes[0].mode``"""
    where: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole file; its fields are the file's sections."""

    __pydantic_config__ = IN_FILE
    actions: Remedies
    """reason -> action"""
    mode: OneMode
    budgets: Budgets
    limits: Annotated[Limits, TABLE]
    signals: Annotated[Signals, TABLE]
    bursts: Annotated[Bursts, TABLE]
    rollback: Annotated[Rollback, TABLE]
    life: Annotated[LifeSpans, TABLE]
    alarms: Annotated[Alarms, TABLE]
    modes: Modes = field(default_factory=dict)
    """reason or action -> mode"""
    approvers: Approvers = field(default_factory=dict)
    confidence: Confidence = field(default_factory=dict)
    quiet_hours: Annotated[tuple[QuietHours, ...], LIST] = ()
    classes: Annotated[tuple[JobClass, ...], LIST] = ()
    lines: Annotated[Mapping[str, str], Field(alias=LINES)] = field(default_factory=dict)
    """clause -> file:line"""

    def class_of(self, job: str, labels: Mapping[str, str], gpus: int | None) -> JobClass | None:
        """The first class that fits."""
        return next((one for one in self.classes if one.match.fits(job, labels, gpus)), None)

    def modes_used(self) -> frozenset[Mode]:
        """Every mode that a decision can have."""
        own = [mode for one in self.classes for mode in (one.mode, *one.modes.values()) if mode is not None]
        return frozenset([self.mode, *self.modes.values(), *own])

    def remedy(self, reason: str, job_class: JobClass | None = None) -> Remedy:
        """What is usually done about a reason."""
        own = job_class.actions.get(reason) if job_class else None
        return own or self.actions.get(reason) or self.actions["unknown"]

    def budget(self, reason: str, job_class: JobClass | None = None) -> Budget:
        """How often a reason is answered with a restart."""
        tables = [job_class.budgets, self.budgets] if job_class else [self.budgets]
        return next((table[name] for table in tables for name in (reason, "default") if name in table), self.budgets["default"])

    def mode_for(self, reason: str, kind: str, job_class: JobClass | None = None) -> Chosen:
        """Who must approve: the mode of the job's class comes before that of the policy, and a reason's before an action's."""
        if job_class is not None:
            for name in (reason, kind):
                if name in job_class.modes:
                    clause = f"classes.{job_class.name}.modes.{name}"
                    return Chosen(job_class.modes[name], clause, self.lines.get(clause, job_class.where))
            if job_class.mode is not None:
                clause = f"classes.{job_class.name}.mode"
                return Chosen(job_class.mode, clause, self.lines.get(clause, job_class.where))
        for name in (reason, kind):
            if name in self.modes:
                return Chosen(self.modes[name], f"modes.{name}", self.line(f"modes.{name}"))
        return Chosen(self.mode, "mode", self.line("mode"))

    def confidence_for(self, kind: str, job_class: JobClass | None = None) -> float:
        """How sure a diagnosis must be for an action without a person's approval."""
        tables = [job_class.confidence, self.confidence] if job_class else [self.confidence]
        return next(table[name] for table in tables for name in (kind, "default") if name in table)

    def may_approve(
        self, kind: str, who: str, roles: Collection[str], *, owner: bool = False, job_class: JobClass | None = None
    ) -> bool:
        """Whether ``who`` may approve an action of this kind."""
        tables = [job_class.approvers, self.approvers] if job_class else [self.approvers]
        asked = (kind, "isolate_and_restart", "default") if kind in (ISOLATE, REBOOT) else (kind, "default")
        names = next((table[name] for table in tables for name in asked if name in table), ())
        return f"user:{who}" in names or any(f"role:{role}" in names for role in roles) or (owner and "owner" in names)

    def line(self, clause: str) -> str:
        """The file and line of a clause, or of its nearest parent."""
        while clause and clause not in self.lines:
            clause = clause.rpartition(".")[0]
        return self.lines.get(clause, "")
