"""Unknown lines of logs -> learned rules, offline: mine, judge, shadow, settle.

Every other line of each shape that no rule knows is mined; the others, which the miner did not see, are the shadow that a rule
is counted against before it may act.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnose.agent.miner import Miner
from diagnose.job import Job
from diagnose.learned import Book, Counts, Learned, Refusal, judged, moved, settle
from diagnose.matcher import Matcher
from diagnose.rules import Rule, RuleSet, load

_MOST_LINES = 500_000
_MOST_EVIDENCE = 5_000


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


def learn(jobs: Sequence[Job], book: Book, now: float | None = None) -> Lesson:
    """Learn from the unknown lines of ``jobs``, which have been read."""
    now = time.time() if now is None else now
    lesson = Lesson()
    miner = Miner()
    unseen: list[str] = []
    evidence: dict[str, None] = {}
    for job in jobs:
        lines, failing = _lines(job)
        evidence |= dict.fromkeys(failing[:_MOST_EVIDENCE])
        lesson.lines += len(lines)
        unseen += [line for line in lines if not miner.add(line)]
    for rule, template in miner.proposals():
        provenance = {"by": "miner", "jobs": [job.id for job in jobs][:20], "seen": template.count}
        lesson.proposed += propose(book, rule, provenance, [*template.samples, *template.held], now)
    lesson.refused = judge(book, list(evidence), now)
    shadow(book, unseen, list(evidence), now)
    settled = settle(book, now)
    lesson.active = [known for known in settled if known.state == "active"]
    lesson.retired = [known for known in settled if known.state == "retired"]
    lesson.shadow = book.rules("shadow", family="filters")
    return lesson


def propose(book: Book, rule: Rule, provenance: dict[str, Any], lines: Sequence[str], now: float) -> bool:
    """Enter a proposal with the lines it was written for; False if its pattern is known."""
    return book.add(Learned(rule, "proposed", provenance=provenance, lines=tuple(lines), created=now, changed=now))


def judge(book: Book, evidence: Sequence[str], now: float) -> list[tuple[Rule, Refusal]]:
    """What waits as proposed, also from a run that broke off, goes into shadow or is refused; the refusals."""
    waiting = book.rules("proposed", family="filters")
    refused = judged([known.rule for known in waiting], {known.rule.id: known.lines for known in waiting}, evidence)
    for known in waiting:
        refusal = refused.get(known.rule.id)
        why = f"{refusal.name}: {refusal.what}" if refusal else None
        book.write(moved(known, "retired" if refusal else "shadow", why, now), "proposed")
    return [(known.rule, refused[known.rule.id]) for known in waiting if known.rule.id in refused]


def shadow(book: Book, lines: Sequence[str], evidence: Sequence[str], now: float, workload: str = "") -> None:
    """Count the filters in shadow against lines that they were not written from; nothing is dropped."""
    waiting = book.rules("shadow", family="filters")
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
        last = now if matched[number] else None
        book.count(rule.id, workload, Counts(matched[number], dirty[number], 1, last))


def working_rules(book: Book | None) -> RuleSet:
    """The shipped rules, and the learned ones that are active."""
    shipped = load()
    return RuleSet.of([*shipped, *(known.rule for known in book.rules("active"))]) if book is not None else shipped


def _lines(job: Job) -> tuple[list[str], list[str]]:
    """The bodies of a job's lines that no rule knows, and of those that failure rules know."""
    unknown: list[str] = []
    failing: list[str] = []
    for body, rule in _bodies(job):
        if rule == -1 and len(unknown) < _MOST_LINES:
            unknown.append(body)
        elif rule >= 0 and len(failing) < _MOST_EVIDENCE:
            failing.append(body)
    return unknown, failing


def _bodies(job: Job) -> Iterator[tuple[str, int]]:
    from diagnose.prefixes import body_start

    for kept in job.compression.kept:
        if not kept.cut:
            yield kept.text[body_start(kept.text) :].decode("utf-8", "replace"), kept.rule
