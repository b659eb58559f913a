"""A report -> what a model is told besides the lines: what the rules say, how far the job came, and what was read already."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from diagnose.agent.retrieval import Material
from diagnose.agent.witnesses import UNKNOWN
from diagnose.report import EvidenceLine, Report

_MOVED = re.compile(
    r"(?i)\b(?:global[ _]?)?(?:step|iter(?:ation)?|epoch|batch)s?\b[\"'\])]* ?[:=#|\[(]? ?0*[1-9]\d*\b(?!\s*(?:%|s\b))"
    r"|\b[1-9]\d*/\d+ \[\d+:\d\d"
)
"""a line that counts steps, or a bar that moved, whatever program printed it"""


def facts(report: Report, material: Material, why: str, shown: Collection[int], read: Sequence[str]) -> list[str]:
    """What is known of a job, one sentence each, redacted. ``why``: it is asked. ``read``: what came of earlier requests."""
    diagnosis, figures = report.diagnosis, report.compression
    found = [
        f"outcome: {report.outcome}, {_progress(report, material, shown)}",
        f"log: {len(report.job.sources)} files, {figures.lines_in} lines, {figures.lines_kept} kept as not regular",
        _said_by_rules(report, material, why),
    ]
    found += [
        f"the rules weighed as well: {other.reason}{_at(material, other.line)} ({other.confidence:.0%})"
        for other in diagnosis.alternatives[:3]
    ]
    found += [f"doubt of the rules: {sentence}" for sentence in diagnosis.doubt[:3]]
    if report.job.attempt > 1:
        found.append(f"this is attempt {report.job.attempt} within the log")
    found += [f"went wrong and was overcome: {line.title or line.text}" for line in diagnosis.recovered[:4]]
    loss = report.metrics.get("loss")
    if loss is not None:
        found.append(f"loss: last {loss.last}, least {loss.min}, {loss.not_finite} values not finite")
    return [material.told(fact) for fact in (*found, *read)]


def _progress(report: Report, material: Material, shown: Collection[int]) -> str:
    """How far the job came. The diagnosis says it, or else the numbers of its log.

    Both know the steps of known programs. Before one says that a job never began, the lines themselves are looked at.
    """
    diagnosis, metrics = report.diagnosis, report.metrics
    steps = [diagnosis.step, *(found.at_step for found in metrics.values())]
    if (counted := metrics.get("step")) is not None:
        steps.append(counted.last)
    known = [step for step in steps if step is not None]
    phase = diagnosis.phase or ("training" if known else "unknown")
    if known:
        return f"phase: {phase}, last step: {max(known):.0f}"
    moved = next((n for n in sorted(shown, reverse=True) if _MOVED.search(material.plain[n])), None)
    if phase == "start-up" and moved is not None:
        return f"phase: unknown, last step: see {material.id_of(moved)}"
    return f"phase: {phase}, last step: none seen"


def _said_by_rules(report: Report, material: Material, why: str) -> str:
    diagnosis = report.diagnosis
    if report.outcome == "healthy":
        return f"the rules say that nothing failed ({diagnosis.confidence:.0%} sure): {why}"
    at = _at(material, diagnosis.root_cause)
    if diagnosis.reason == UNKNOWN:
        return f"the rules say that {why}{at}"
    return f"the rules say {diagnosis.reason}{at} ({diagnosis.category}, {diagnosis.confidence:.0%} sure): {why}"


def _at(material: Material, line: EvidenceLine | None) -> str:
    number = material.find(line.source, line.line) if line is not None else None
    return f" at {material.id_of(number)}" if number is not None else ""


def trace(read: dict[str, object], found: int, new: int) -> str:
    """What came of one request to read, so that the next round does not repeat it."""
    kind = read["kind"]
    what = {
        "search": f"search for {str(read['words'])[:120]!r}",
        "rank": f"rank {read['rank']}",
        "file": f"end of the file {str(read['file'])[:120]!r}",
        "around": f"lines around {read['line']}",
        "dropped": f"everything around {read['line']}",
    }[str(kind)]
    if not found:
        return f"read already: {what}: there is nothing"
    return f"read already: {what}: {found} lines, {new} of them new"
