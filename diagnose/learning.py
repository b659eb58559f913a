"""Unknown lines of logs -> learned rules, offline: mine, judge, shadow, settle.

The first half of what no rule knows is mined; the second half, which the miner did not see, is the shadow that a rule is
counted against before it may act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from diagnose.agent.miner import Miner
from diagnose.job import Job
from diagnose.learned import Book, Learned, Refusal, judged
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


def learn(jobs: Sequence[Job], book: Book) -> Lesson:
    """Learn from the unknown lines of ``jobs``, which have been read."""
    lesson = Lesson()
    miner = Miner()
    unseen: list[str] = []
    evidence: dict[str, None] = {}
    for job in jobs:
        lines, failing = _lines(job)
        evidence |= dict.fromkeys(failing[:_MOST_EVIDENCE])
        lesson.lines += len(lines)
        half = (len(lines) + 1) // 2
        for line in lines[:half]:
            miner.add(line)
        unseen += lines[half:]
    proposals = [(rule, template) for rule, template in miner.proposals() if not book.knows(rule.pattern)]
    lesson.proposed = len(proposals)
    written_for = {rule.id: template.samples for rule, template in proposals}
    refused = judged([rule for rule, _ in proposals], written_for, evidence)
    for rule, template in proposals:
        provenance = {"by": "miner", "jobs": [job.id for job in jobs][:20], "seen": template.count}
        if (refusal := refused.get(rule.id)) is not None:
            book.add(rule, "retired", provenance, f"{refusal.name}: {refusal.what}")
            lesson.refused.append((rule, refusal))
        else:
            book.add(rule, "shadow", provenance)
    shadow(book, unseen, list(evidence))
    settled = {known.rule.id: known for known in book.settle()}
    lesson.active = [known for known in settled.values() if known.state == "active"]
    lesson.retired = [known for known in settled.values() if known.state == "retired"]
    lesson.shadow = book.rules("shadow")
    return lesson


def shadow(book: Book, lines: Sequence[str], evidence: Sequence[str]) -> None:
    """Count the rules in shadow against lines that they were not written from; nothing is dropped."""
    waiting = book.rules("shadow")
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
        if matched[number]:
            book.count(rule.id, matched[number], dirty[number])


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
