"""Unknown lines of logs -> learned rules, offline: mine, judge, shadow, settle.

Every other line of each shape that no rule knows is mined; the others, which the miner did not see, are the shadow that a rule
is counted against before it may act.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnose.job import Job
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.learning.learned_rule import Book, Counts, Learned, Refusal, judged, moved, settle, usable, workload_of
from diagnose.learning.miner import Miner, Template
from diagnose.learning.write_filters import LogAgent, Written
from diagnose.matching.matcher import Matcher
from diagnose.model.model import Model
from diagnose.model.settings import Settings
from diagnose.redaction.text import clear
from diagnose.verification.rules import body_of

if TYPE_CHECKING:
    from diagnose.report import Report

_MOST_LINES = 500_000
_MOST_EVIDENCE = 5_000
_MOST_JOBS = 20
"""whose names a rule's provenance has"""


@dataclass(slots=True)
class Lesson:
    """What one pass of learning came to."""

    lines: int = 0
    """that no rule knew"""
    proposed: int = 0
    refused: list[tuple[Rule, Refusal]] = field(default_factory=list)
    shadow: list[Learned] = field(default_factory=list)
    active: list[Learned] = field(default_factory=list)
    retired: list[Learned] = field(default_factory=list)
    forwarded: Counter[str] = field(default_factory=Counter)
    """groups that the model called error-like or an instruction: kept for the diagnosis"""
    redacted: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def learn(
    jobs: Sequence[Job],
    book: Book,
    now: float | None = None,
    settings: Settings | None = None,
    past: Sequence[str] = (),
) -> Lesson:
    """Learn from the unknown lines of ``jobs``, which have been read; with ``settings`` a model is asked for the rules.

    ``past``: lines that known failures began with.
    """
    now = time.time() if now is None else now
    miner = Miner()
    met: list[tuple[str, list[str], list[str]]] = []
    evidence = dict.fromkeys(past)
    lines = 0
    for job in jobs:
        unknown, failing = _lines(job)
        evidence |= dict.fromkeys(failing[:_MOST_EVIDENCE])
        lines += len(unknown)
        # A rule keeps lines as examples, and words of them in its pattern.
        unseen = [line for line in clear(unknown) if not miner.add(line)]
        met.append((workload_of(job.fingerprint, book), unseen, failing))
    lesson = taught(miner, [job.id for job in jobs], book, list(evidence), now, settings)
    lesson.lines = lines
    for workload, unseen, failing in met:
        shadow(book, unseen, failing, now, workload)
    settled = settle(book, now)
    lesson.active = [known for known in settled if known.state == "active"]
    lesson.retired = [known for known in settled if known.state == "retired"]
    lesson.shadow = book.rules("shadow", family="filters")
    return lesson


def taught(
    miner: Miner,
    jobs: Sequence[str],
    book: Book,
    evidence: Sequence[str],
    now: float,
    settings: Settings | None = None,
    segment: int = 0,
    ask: Callable[[Sequence[Template], str, int], Written] | None = None,
) -> Lesson:
    """What was gathered becomes proposals, and they are judged: what passes is in shadow.

    ``ask`` (templates, job, segment) asks a model that is open already, with its budgets; ``settings`` one for this lesson.
    """
    if ask is None and settings is not None:
        ask = partial(_asked_once, settings)
    lesson = Lesson()
    about = {"jobs": list(jobs[:_MOST_JOBS]), "segment": segment}
    groups = {known.provenance.get("group", known.rule.id) for known in book.rules(family="filters")}
    fresh = {rule.id: (rule, template) for rule, template in miner.proposals() if rule.id not in groups}
    mined = {name: {"by": "miner", "seen": template.count, **about} for name, (_, template) in fresh.items()}
    if ask is not None and fresh:
        written = ask([template for _, template in fresh.values()], jobs[0], segment)
        lesson.problems, lesson.forwarded, lesson.redacted = written.problems, written.refused, written.redacted
        for proposal in written.forwarded:
            forward(book, proposal.rule, about | proposal.provenance, now)
        for proposal in written.proposals:
            lesson.proposed += propose(book, proposal.rule, about | proposal.provenance, proposal.lines, now)
        lesson.refused = judge(book, evidence, now)
        # Where the door refused what the model wrote, the miner's template may do better.
        again = {str(known.provenance.get("group")) for known in book.rules("retired", family="filters")}
        mined = {name: why | {"because": "the model's rule was refused"} for name, why in mined.items() if name in again}
        fresh = {name: pair for name, pair in fresh.items() if name in mined}
    for name, (rule, template) in fresh.items():
        lesson.proposed += propose(book, rule, mined[name], [*template.samples, *template.held], now)
    lesson.refused += judge(book, evidence, now)
    return lesson


def _asked_once(settings: Settings, templates: Sequence[Template], job: str, segment: int) -> Written:
    return asyncio.run(_asked(settings, templates, job, segment))


async def _asked(settings: Settings, templates: Sequence[Template], job: str, segment: int) -> Written:
    async with Model(settings) as model:
        return await LogAgent(model).write(templates, job, segment)


def propose(book: Book, rule: Rule, provenance: dict[str, Any], lines: Sequence[str], now: float) -> bool:
    """Enter a proposal with the lines it was written for; False if its pattern is known."""
    return book.add(Learned(rule, "proposed", provenance=provenance, lines=tuple(lines), created=now, changed=now))


def forward(book: Book, rule: Rule, provenance: dict[str, Any], now: float) -> None:
    """Remember lines that are left to the diagnosis: they are not asked about again, and no filter may drop them."""
    why = f"forwarded: {provenance['forwarded']}"
    book.add(Learned(rule, "retired", provenance=provenance, why=why, created=now, changed=now))


def judge(book: Book, evidence: Sequence[str], now: float) -> list[tuple[Rule, Refusal]]:
    """What waits as proposed, also from a run that broke off, goes into shadow or is refused; the refusals."""
    waiting = book.rules("proposed", family="filters")
    forwarded = (known.rule for known in book.rules("retired", family="filters") if "forwarded" in known.provenance)
    evidence = [*evidence, *(example.line for rule in forwarded for example in rule.matches)]
    failures = [known.rule for known in book.rules(family="failures")]
    lines = {known.rule.id: known.lines for known in waiting}
    refused = judged([known.rule for known in waiting], lines, evidence, failures=failures)
    for known in waiting:
        refusal = refused.get(known.rule.id)
        why = f"{refusal.name}: {refusal.what}" if refusal else None
        book.write(moved(known, "retired" if refusal else "shadow", why, now), "proposed")
    return [(known.rule, refused[known.rule.id]) for known in waiting if known.rule.id in refused]


def shadow(book: Book, lines: Sequence[str], evidence: Sequence[str], now: float, workload: str = "") -> None:
    """Count the filters in shadow against lines that they were not written from; nothing is dropped."""
    waiting = usable(book.rules("shadow", family="filters"))
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
        # Only a workload that prints its lines is one that a rule is for.
        if matched[number]:
            book.count(rule.id, workload, Counts(matched[number], dirty[number], 1, now))


def working_rules(book: Book, workload: str | None, base: RuleSet | None = None) -> RuleSet:
    """The shipped rules, or ``base``, and the learned ones that act for jobs of ``workload``."""
    learned = (known.rule for known in usable([one for one in book.rules("active") if one.acts_for(workload)]))
    return RuleSet.of([*(load() if base is None else base), *learned])


def root_of(report: Report) -> str | None:
    """The body of the line that a failure began with, as evidence: no filter may drop it, whether a rule knows it or not.

    What a detector points at is regular output, but for its numbers.
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
