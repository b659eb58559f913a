"""What may be done, how often and with whose yes: ``rules/policy.yaml``, and a site's file laid over it.

Everything that decides is data with a place: each value knows the file and the line it came from, so that a decision can
name the line that made it, and a mistake the line to mend. ``policy_file`` reads it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from diagnose.decision.clauses import Mode
from diagnose.decision.quiet_hours import QuietHours

ISOLATE, RELEASE = "isolate", "release"
"""what is decided beside the actions of the taxonomy, about a node by itself: to take it out, to give it back"""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The usual action for a reason, with the sentence that says why."""

    kind: str
    why: str
    where: str = ""
    check_nodes: bool = False
    """the job's nodes are tested against each other before it starts again"""


@dataclass(frozen=True, slots=True)
class Budget:
    """How often one cause is answered by a restart."""

    attempts: int
    within_s: float
    backoff_s: float
    backoff_most_s: float
    at_startup: int
    """so many failures alike before the first step end the attempts"""
    progress_s: float
    """an attempt that made steps for so long starts the count anew"""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The blast radius."""

    isolations_per_hour: int
    isolated_share: float
    nodes_at_once: int
    restarts_per_day: int
    job_cool_down_s: float
    node_cool_down_s: float
    isolations_of_a_node: int
    never: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signals:
    """What speaks against a node, and how much of it is needed."""

    needed: int
    within_s: float
    strong_xids: frozenset[int]
    kernel_sources: tuple[str, ...]
    named_most: int
    check_within_s: float


@dataclass(frozen=True, slots=True)
class Bursts:
    """When many failures are one incident."""

    jobs: int
    within_s: float
    hold_s: float
    hold_most_s: float
    family_of: Mapping[str, str]

    def family(self, reason: str) -> str:
        """What a reason is counted as."""
        return self.family_of.get(reason, reason)


@dataclass(frozen=True, slots=True)
class Rollback:
    """From where to go on, and what to leave out."""

    back_share: float
    back_least: int
    skip_most: int
    same_step: int
    """so many steps apart is the same place in the data"""


@dataclass(frozen=True, slots=True)
class LifeSpans:
    """How long an action may wait and run."""

    approve_within_s: float
    start_within_s: float
    lease_s: float
    claims: int


@dataclass(frozen=True, slots=True)
class Match:
    """Which jobs belong to a class; what is not said does not matter."""

    job: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus_at_least: int | None = None

    def fits(self, job: str, labels: Mapping[str, str], gpus: int | None) -> bool:
        """Whether a job belongs to it. An unknown number of GPUs is not enough of them."""
        if self.job is not None and not fnmatch.fnmatchcase(job, self.job):
            return False
        if any(not fnmatch.fnmatchcase(labels.get(name, ""), pattern) for name, pattern in self.labels.items()):
            return False
        return self.gpus_at_least is None or (gpus is not None and gpus >= self.gpus_at_least)


@dataclass(frozen=True, slots=True)
class JobClass:
    """What differs for some jobs."""

    name: str
    match: Match
    where: str
    mode: Mode | None = None
    modes: Mapping[str, Mode] = field(default_factory=dict)
    actions: Mapping[str, Remedy] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    approvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A mode, and the line of the policy that says so."""

    mode: Mode
    clause: str
    """as ``modes.restart`` or ``classes[0].mode``"""
    where: str


@dataclass(frozen=True, slots=True)
class Policy:
    actions: dict[str, Remedy]
    """reason -> action"""
    mode: Mode
    modes: Mapping[str, Mode]
    """reason or action -> mode"""
    approvers: Mapping[str, tuple[str, ...]]
    confidence: Mapping[str, float]
    budgets: Mapping[str, Budget]
    limits: Limits
    signals: Signals
    bursts: Bursts
    rollback: Rollback
    life: LifeSpans
    quiet_hours: tuple[QuietHours, ...] = ()
    classes: tuple[JobClass, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """clause -> file:line"""

    def class_of(self, job: str, labels: Mapping[str, str], gpus: int | None) -> JobClass | None:
        """The first class that fits."""
        return next((one for one in self.classes if one.match.fits(job, labels, gpus)), None)

    def remedy(self, reason: str, job_class: JobClass | None = None) -> Remedy:
        """What is usually done about a reason."""
        own = job_class.actions.get(reason) if job_class else None
        return own or self.actions.get(reason) or self.actions["unknown"]

    def budget(self, reason: str, job_class: JobClass | None = None) -> Budget:
        """How often a reason is answered by a restart."""
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
        """How sure a diagnosis must be for an action without a person's yes."""
        tables = [job_class.confidence, self.confidence] if job_class else [self.confidence]
        return next(table[name] for table in tables for name in (kind, "default") if name in table)

    def may_approve(
        self, kind: str, who: str, roles: Collection[str], *, owner: bool = False, job_class: JobClass | None = None
    ) -> bool:
        """Whether ``who`` may approve an action of this kind."""
        tables = [job_class.approvers, self.approvers] if job_class else [self.approvers]
        names = next((table[name] for table in tables for name in (kind, "default") if name in table), ())
        return f"user:{who}" in names or any(f"role:{role}" in names for role in roles) or (owner and "owner" in names)

    def line(self, clause: str) -> str:
        """The file and line of a clause, or of its nearest parent."""
        while clause and clause not in self.lines:
            clause = clause.rpartition(".")[0]
        return self.lines.get(clause, "")
