"""A rule that was learned, with its state and what it has met.

proposed -> shadow -> active -> retired, for both families, filters and failures:

- *proposed*: entered before anything judges it, with the lines it was written for, so that a crash loses nothing;
- *shadow*: it passed everything that ``proposals.judged`` asks. It is counted against lines that it has not seen, and does
  nothing;
- *active*: those counts are clean. At first it acts for the workloads that it was learned from (``compression.workload``);
- *retired*: it was refused, it matched a line that speaks against it, it matched nothing for long, or a person retired it.
  It is kept, with the reason, so that it is not proposed again.

It makes no difference who wrote it (the miner, a model, a person). The functions here decide which state follows from which
counts. ``rule_store`` only stores rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Example, Family, Rule

State = Literal["proposed", "shadow", "active", "retired"]
STATES: tuple[State, ...] = ("proposed", "shadow", "active", "retired")
Scope = Literal["workloads", "project", "global"]
"""for whom a rule acts: the workloads that it was learned from, every job of its project, or every job"""
MARK = "~"
"""the workloads of a project are called PROJECT~NAME; outside of projects a name is without it"""

CLEAN_LINES = 1
"""a filter must have matched so many lines in shadow before it may act"""
CLEAN_JOBS = 3
"""a failure rule must have been silent on so many jobs that went well before it may act"""
WIDE = 3
"""a filter must have been clean in so many workloads before it acts for all"""
ROT_S = 180 * 86_400.0
"""a rule that matched nothing for so long is retired"""


BY_ANSWER = "answer"
"""who confirmed the failure that a rule was made of, if nobody did but the model that named it"""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many lines, and how many that speak against it, a rule has matched."""

    matched: int = 0
    """lines"""
    dirty: int = 0
    """of those, lines that speak against it: for a filter evidence of failure; for a failure rule a run that went well, or a
    failure with another reason
    """
    jobs: int = 0
    """jobs that it was compared with, whether it matched or not"""
    last: float | None = None
    """when it last matched, in seconds since 1970"""

    def __add__(self, other: Counts) -> Counts:
        last = max((at for at in (self.last, other.last) if at is not None), default=None)
        return Counts(self.matched + other.matched, self.dirty + other.dirty, self.jobs + other.jobs, last)


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A learned rule with its history."""

    rule: Rule
    state: State
    scope: Scope = "workloads"
    provenance: dict[str, Any] = field(default_factory=dict)
    """who wrote it: by (miner, model, person), model, prompt, version, votes, segment, job"""
    why: str | None = None
    """of its state"""
    lines: tuple[str, ...] = ()
    """while proposed: the lines that it was written for, with some that its author did not see"""
    workloads: dict[str, Counts] = field(default_factory=dict)
    """what it met, by workload; "" if the workload is unknown"""
    created: float = 0.0
    changed: float = 0.0

    @property
    def counts(self) -> Counts:
        """Its counts over all workloads."""
        return sum(self.workloads.values(), Counts())

    @property
    def matched(self) -> int:
        return self.counts.matched

    @property
    def dirty(self) -> int:
        return self.counts.dirty

    @property
    def project(self) -> str | None:
        """The project that it was learned in, if there are projects."""
        return self.provenance.get("project")

    @property
    def unconfirmed(self) -> bool:
        """Whether it was made of a model's answer that nobody has confirmed. It must be right about another failure first."""
        return self.provenance.get("confirmed") == BY_ANSWER

    def may_learn_from(self, project: str | None) -> bool:
        """Whether what happens in jobs of a project says something about it."""
        return self.scope == "global" or self.project in (None, project)

    def acts_for(self, workload: str | None) -> bool:
        """Whether it acts for jobs of ``workload``. None: nothing is known of the job."""
        if self.state != "active" or self.scope == "global" or workload is None:
            return self.state == "active" and self.scope == "global"
        if self.project is not None and project_of(workload) != self.project:
            return False
        return self.scope == "project" or workload in self.workloads


def project_of(workload: str) -> str | None:
    """The project of a workload; None outside of projects."""
    project, mark, _ = workload.partition(MARK)
    return project if mark else None


# --- the life of a rule -----------------------------------------------------------------------------------------------------


def followed(known: LearnedRule, now: float) -> LearnedRule:
    """``known`` in the state that follows from its counts at the time ``now``. It is the same object if nothing changes."""
    counts = known.counts
    if known.state not in ("shadow", "active"):
        return known
    if counts.dirty:
        return _moved(known, "retired", f"met {counts.dirty} {_against(known.rule)} in {known.state}", now)
    if known.state == "shadow":
        if known.rule.family == "filters" and counts.matched >= CLEAN_LINES:
            return _moved(known, "active", f"clean on {counts.matched} lines in shadow", now)
        if known.rule.family == "failures" and counts.jobs >= CLEAN_JOBS and (counts.matched or not known.unconfirmed):
            return _moved(known, "active", f"silent on {counts.jobs} jobs that went well, in shadow", now)
        return known
    seen = max(known.changed, counts.last or 0.0)
    if now - seen > ROT_S:
        return _moved(known, "retired", f"rotten: matched nothing for {(now - seen) / 86_400:.0f} days", now)
    clean = sum(1 for name, one in known.workloads.items() if name and one.matched)
    if known.scope == "workloads" and clean >= WIDE:
        wide: Scope = "global" if known.project is None else "project"
        return replace(known, scope=wide, why=f"clean in {clean} workloads", changed=now)
    return known


def moved(known: LearnedRule, state: State, why: str | None, now: float) -> LearnedRule:
    """``known`` in another state that a person asked for. Raises an error if that is not allowed."""
    if state == "active" and known.dirty:
        raise RuleError(
            f"it met {known.dirty} {_against(known.rule)} in shadow", where=known.rule.id, remedy="retire it instead"
        )
    return _moved(known, state, why, now)


def promoted(known: LearnedRule, why: str, now: float) -> LearnedRule:
    """``known`` active, for every job."""
    return replace(moved(known, "active", why, now), scope="global")


def _moved(known: LearnedRule, state: State, why: str | None, now: float) -> LearnedRule:
    return replace(known, state=state, why=why, changed=now, lines=known.lines if state == "proposed" else ())


def _against(rule: Rule) -> str:
    return "lines with evidence of failure" if rule.family == "filters" else "lines of runs that went well"


# --- as text ------------------------------------------------------------------------------------------------------------------


def as_dict(rule: Rule) -> dict[str, Any]:
    """A rule as JSON can hold it, for a store."""
    return {name: value for name, value in asdict(rule).items() if name not in ("id", "family", "pattern", "at")}


def of_dict(rule_id: str, family: Family, pattern: str, fields: Mapping[str, Any]) -> Rule:
    """The rule that ``as_dict`` made ``fields`` of. Fields that a later version added are left out."""
    known = {name: value for name, value in fields.items() if name in Rule.__dataclass_fields__}
    known["metrics"] = tuple((name, expression) for name, expression in known.get("metrics", ()))
    for key in ("matches", "misses"):
        known[key] = tuple(
            Example(one["line"], one["at"], tuple((name, value) for name, value in one["captures"]))
            for one in known.get(key, ())
        )
    return Rule(**{**known, "id": rule_id, "family": family, "pattern": pattern})


def exported(rules: Sequence[LearnedRule]) -> str:
    """Rules of one family as a file for ``rules/filters/`` or ``rules/failures/``, for review and merging."""
    import yaml

    entries = []
    for known in rules:
        rule = known.rule
        own: dict[str, Any] = {"kind": rule.kind} if rule.family == "filters" else {"reason": rule.reason, "layer": rule.layer}
        if rule.family == "failures":
            own |= {"severity": rule.severity} | ({"symptom": "true"} if rule.symptom else {})
            own |= {name: value for name in ("action", "category", "mitigation") if (value := getattr(rule, name))}
        own |= {"reference": rule.reference} if rule.reference else {}
        entries.append(
            {
                "id": rule.id,
                "title": rule.title,
                **own,
                "pattern": rule.pattern,
                **({"metrics": dict(rule.metrics)} if rule.metrics else {}),
                "examples": {
                    "matches": [example.line for example in rule.matches],
                    "misses": [example.line for example in rule.misses],
                },
            }
        )
    filters = not rules or rules[0].rule.family == "filters"
    head = {**({"framework": "learned"} if filters else {}), "printed_by": "unknown: learned from logs", "rules": entries}
    return str(yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=10_000))
