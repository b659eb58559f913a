"""News about attempts, for people. Each is an entry in the audit trail, in the transaction that stores the verdict.

Webhooks read the trail. So nothing is announced that is not stored, and nothing that is stored is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select

from diagnose.report import Report
from service.store import tables as t

ALARMS = ("hang", "loss_anomaly")
"""reasons for which somebody must look at a job that still runs"""
_LONGEST = 1_000


class About(NamedTuple):
    """The attempt that a verdict is about."""

    job: Row[*tuple[Any, ...]]
    """its name, user, cluster"""
    attempt: int
    group: int | None
    final: bool
    regressed: bool
    at: float


def standing(connection: Connection, attempts: Sequence[int]) -> dict[int, Row[*tuple[Any, ...]]]:
    """The current diagnosis of each attempt that has one."""
    d = t.diagnoses.c
    rows = connection.execute(select(d.attempt_id, d.final, d.outcome, d.reason).where(d.attempt_id.in_(attempts)))
    return {row.attempt_id: row for row in rows}


def alarming(report: Report) -> bool:
    """Whether somebody should look at a job that still runs."""
    return report.outcome == "running" and report.diagnosis.reason in ALARMS


def news(was: Row[*tuple[Any, ...]] | None, report: Report, about: About) -> tuple[list[dict[str, Any]], str | None]:
    """(entries for the trail: what is new since the diagnosis ``was``; whether an alarm is ``raised`` or ``over``)."""
    diagnosis = report.diagnosis
    failed = about.final and report.outcome == "failed"
    told = was is not None and was.final and was.outcome == "failed" and was.reason == diagnosis.reason
    alarm = alarming(report)
    alarmed = was.reason if was is not None and was.outcome == "running" and was.reason in ALARMS else None
    kinds = []
    if failed and not told:
        kinds.append("job.failed")
    if about.regressed:
        kinds.append("failure.regressed")
    if alarm and alarmed != diagnosis.reason:
        kinds.append("job.alarm")
    over = "over" if alarmed and not alarm and report.outcome == "running" else None
    if not kinds:
        return [], over
    root = diagnosis.root_cause
    detail = {
        "job": about.job.name,
        "attempt": about.attempt,
        "category": diagnosis.category,
        "reason": diagnosis.reason,
        "confidence": diagnosis.confidence,
        "summary": diagnosis.summary[:_LONGEST],
        "mitigation": (diagnosis.mitigation or "")[:_LONGEST] or None,
        "root_cause": {"source": root.source, "line": root.line, "text": root.text[:_LONGEST]} if root else None,
        "nodes": diagnosis.suspects.nodes[:20],
        "group": about.group,
        "user": about.job.user,
        "cluster": about.job.cluster,
    }
    entry = {"at": about.at, "who": "diagnosis", "subject": f"job/{about.job.name}", "detail": detail}
    return [{**entry, "what": kind} for kind in kinds], "raised" if "job.alarm" in kinds else over


def enter(connection: Connection, entries: list[dict[str, Any]]) -> None:
    """Write the entries into the audit trail."""
    if entries:
        connection.execute(insert(t.audit), entries)
