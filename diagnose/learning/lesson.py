"""Unknown lines of logs -> learned rules, offline: mine, judge, shadow, settle.

Of the lines that no rule knows, every second one of a shape is mined. The miner does not see the others. A rule in shadow is
counted against them before it may act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.job import Job
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.learning.learned_rule import Counts, LearnedRule, moved
from diagnose.learning.miner import Miner, Template
from diagnose.learning.rule_store import RuleStore, settle, usable, workload_of
from diagnose.learning.write_filters import Written
from diagnose.matching.matcher import Matcher
from diagnose.redaction.text import clear
from diagnose.verification.proposals import Refusal, judged
from diagnose.verification.rules import body_of

if TYPE_CHECKING:
    from diagnose.report import Report

_MOST_LINES = 500_000
_MOST_EVIDENCE = 5_000
_MOST_JOBS = 20
"""so many jobs are named in the provenance of a rule"""
AskForRules = Callable[[Sequence[Template], str, int], Written]
"""(templates, job, segment) -> what a model makes of them"""


@dataclass(slots=True)
class Lesson:
    """The result of one pass of learning."""

    lines: int = 0
    """lines that no rule knew"""
    proposed: int = 0
    refused: list[tuple[Rule, Refusal]] = field(default_factory=list)
    shadow: list[LearnedRule] = field(default_factory=list)
    active: list[LearnedRule] = field(default_factory=list)
    retired: list[LearnedRule] = field(default_factory=list)
    forwarded: Counter[str] = field(default_factory=Counter)
    """groups that the model called error-like or an instruction: kept for the diagnosis"""
    redacted: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The lesson as JSON, for the process that asked for it."""
        return {
            "lines": self.lines,
            "proposed": self.proposed,
            "refused": [{"id": rule.id, "name": why.name, "what": why.what} for rule, why in self.refused],
            "shadow": [known.rule.id for known in self.shadow],
            "active": [known.rule.id for known in self.active],
            "forwarded": dict(self.forwarded),
            "redacted": dict(self.redacted),
            "problems": self.problems,
        }


class Heard(NamedTuple):
    """What can be learned from a job that was read."""

    job: str
    workload: str
    unknown: list[str]
    """bodies of lines that no rule knows"""
    failing: list[str]
    """of those that failure rules know, or that its failure began with"""


def heard(job: Job, store: RuleStore) -> Heard:
    """What can be learned from a job that was read to its end."""
    return Heard(job.id, workload_of(job.fingerprint, store), *_lines(job))


def learn(
    jobs: Sequence[Heard], store: RuleStore, now: float, past: Sequence[str] = (), ask: AskForRules | None = None
) -> Lesson:
    """Learn from ``jobs``. ``past``: lines that known failures began with."""
    miner = Miner()
    evidence = dict.fromkeys(past)
    unseen = []
    for one in jobs:
        evidence |= dict.fromkeys(one.failing[:_MOST_EVIDENCE])
        # A rule keeps lines as examples, and words of them in its pattern.
        unseen.append([line for line in clear(one.unknown) if not miner.add(line)])
    lesson = hold_lesson(miner, [one.job for one in jobs], store, list(evidence), now, ask=ask)
    lesson.lines = sum(len(one.unknown) for one in jobs)
    for one, lines in zip(jobs, unseen, strict=True):
        shadow(store, lines, one.failing, now, one.workload)
    settled = settle(store, now)
    lesson.active = [known for known in settled if known.state == "active"]
    lesson.retired = [known for known in settled if known.state == "retired"]
    lesson.shadow = store.rules("shadow", family="filters")
    return lesson


def hold_lesson(
    miner: Miner,
    jobs: Sequence[str],
    store: RuleStore,
    evidence: Sequence[str],
    now: float,
    segment: int = 0,
    ask: AskForRules | None = None,
    project: str | None = None,
) -> Lesson:
    """Make proposals from the gathered lines and judge them. Those that pass are in shadow.

    ``project``: whose lines they are, and for whose jobs the rules act.
    """
    lesson = Lesson()
    about: dict[str, Any] = {"jobs": list(jobs[:_MOST_JOBS]), "segment": segment}
    if project is not None:
        about["project"] = project
    groups = {known.provenance.get("group", known.rule.id) for known in store.rules(family="filters")}
    fresh = {rule.id: (rule, template) for rule, template in miner.proposals() if rule.id not in groups}
    mined = {name: {"by": "miner", "seen": template.count, **about} for name, (_, template) in fresh.items()}
    if ask is not None and fresh:
        written = ask([template for _, template in fresh.values()], jobs[0], segment)
        lesson.problems, lesson.forwarded, lesson.redacted = written.problems, written.refused, written.redacted
        for proposal in written.forwarded:
            forward(store, proposal.rule, about | proposal.provenance, now)
        for proposal in written.proposals:
            lesson.proposed += propose(store, proposal.rule, about | proposal.provenance, proposal.lines, now)
        lesson.refused = judge(store, evidence, now)
        # If the checks refused the model's rule, the miner's template may do better.
        again = {str(known.provenance.get("group")) for known in store.rules("retired", family="filters")}
        mined = {name: why | {"because": "the model's rule was refused"} for name, why in mined.items() if name in again}
        fresh = {name: pair for name, pair in fresh.items() if name in mined}
    for name, (rule, template) in fresh.items():
        lesson.proposed += propose(store, rule, mined[name], [*template.samples, *template.held], now)
    lesson.refused += judge(store, evidence, now)
    return lesson


def propose(store: RuleStore, rule: Rule, provenance: dict[str, Any], lines: Sequence[str], now: float) -> bool:
    """Enter a proposal with the lines it was written for; False if its pattern is known."""
    return store.add(LearnedRule(rule, "proposed", provenance=provenance, lines=tuple(lines), created=now, changed=now))


def forward(store: RuleStore, rule: Rule, provenance: dict[str, Any], now: float) -> None:
    """Remember lines that are left to the diagnosis. They are not asked about again, and no filter may drop them."""
    why = f"forwarded: {provenance['forwarded']}"
    store.add(LearnedRule(rule, "retired", provenance=provenance, why=why, created=now, changed=now))


def judge(store: RuleStore, evidence: Sequence[str], now: float) -> list[tuple[Rule, Refusal]]:
    """Judge all proposals, also those of a run that broke off. Each goes into shadow or is refused. Returns the refusals."""
    waiting = store.rules("proposed", family="filters")
    forwarded = (known.rule for known in store.rules("retired", family="filters") if "forwarded" in known.provenance)
    evidence = [*evidence, *(example.line for rule in forwarded for example in rule.matches)]
    failures = [known.rule for known in store.rules(family="failures")]
    lines = {known.rule.id: known.lines for known in waiting}
    refused = judged([known.rule for known in waiting], lines, evidence, failures=failures)
    for known in waiting:
        refusal = refused.get(known.rule.id)
        why = f"{refusal.name}: {refusal.what}" if refusal else None
        store.write(moved(known, "retired" if refusal else "shadow", why, now), "proposed")
    return [(known.rule, refused[known.rule.id]) for known in waiting if known.rule.id in refused]


def shadow(store: RuleStore, lines: Sequence[str], evidence: Sequence[str], now: float, workload: str = "") -> None:
    """Count the filters in shadow against lines that they were not written from; nothing is dropped."""
    waiting = usable(store.rules("shadow", family="filters"))
    if not waiting:
        return
    matcher = Matcher(RuleSet.of(known.rule for known in waiting), "plain")
    matched: Counter[int] = Counter()
    dirty: Counter[int] = Counter()
    for line in lines:
        matched.update(matcher.matches(line.encode()))
    for line in evidence:
        hits = matcher.matches(line.encode())
        matched.update(hits)
        dirty.update(hits)
    for number, rule in enumerate(matcher.rules):
        # A rule is meant only for workloads that print its lines.
        if matched[number]:
            store.count(rule.id, workload, Counts(matched[number], dirty[number], 1, now))


def root_of(report: Report) -> str | None:
    """The body of the line that a failure began with, as evidence: no filter may drop it, whether a rule knows it or not.

    A line that a detector points at is regular output except for its numbers, so it is not meant.
    """
    diagnosis = report.diagnosis
    if report.outcome != "failed" or diagnosis.by == "detector" or diagnosis.root_cause is None:
        return None
    return body_of(diagnosis.root_cause.text).decode("utf-8", "replace")


def _lines(job: Job) -> tuple[list[str], list[str]]:
    """The bodies of a job's lines that no rule knows, and of those that failure rules know or that a failure began with."""
    unknown: list[str] = []
    root = root_of(job.report())
    failing: list[str] = [root] if root is not None else []
    for body, rule in _bodies(job):
        if rule == -1 and len(unknown) < _MOST_LINES:
            unknown.append(body)
        elif rule >= 0 and len(failing) < _MOST_EVIDENCE:
            failing.append(body)
    return unknown, failing


def _bodies(job: Job) -> Iterator[tuple[str, int]]:
    from diagnose.reading.prefixes import body_start

    for kept in job.compression.kept:
        if not kept.cut:
            yield kept.text[body_start(kept.text) :].decode("utf-8", "replace"), kept.rule
