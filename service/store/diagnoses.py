"""Reports of attempts, stored with all that follows from them; and their improved versions by the agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import zstandard
from pydantic_core import to_json
from sqlalchemy import Connection, Row, bindparam, func, select, update

from diagnose.decision.lost import Price
from diagnose.packed import packed
from diagnose.report import Report
from service.store import notices
from service.store import tables as t
from service.store.flush import Flush, JudgedReport
from service.store.groups import forget_occurrence, occur
from service.store.tasks import answered, enter
from service.store.training import alarms
from service.store.upsert import update_many, upsert

_MOST_NODES = 64
_SAVED = select(func.max(t.checkpoints.c.step)).where(
    t.checkpoints.c.attempt_id == bindparam("attempt"), t.checkpoints.c.healthy.is_not(False)
)
_JUDGED = update(t.jobs).where(t.jobs.c.id == bindparam("_job"), t.jobs.c.attempt == bindparam("_number"))


def store(connection: Connection, flushes: Sequence[Flush]) -> None:
    """Store the reports of these flushes: the diagnosis, its numbers, its failure group, notices and questions."""
    every = [(flush, flush.judged) for flush in flushes if flush.judged is not None]
    if series := [row for flush, its in every for row in _series(flush, its)]:
        upsert(connection, t.series, series)
    judged = [(flush, its) for flush, its in every if not _known_already(connection, flush)]
    if not judged:
        return
    flushes = [flush for flush, _ in judged]
    j = t.jobs.c
    rows = connection.execute(
        select(j.id, j.name, j.project, j.user, j.cluster).where(j.id.in_([flush.job_id for flush in flushes]))
    )
    jobs = {row.id: row for row in rows}
    o = t.occurrences.c.attempt_id
    entered = set(connection.execute(select(o).where(o.in_([flush.attempt_id for flush in flushes]))).scalars())
    stood = notices.standing(connection, [flush.attempt_id for flush in flushes])
    told = []
    for flush, its in judged:
        job = jobs[flush.job_id]
        _group(connection, flush, its, job, known=flush.attempt_id in entered)
        about = notices.About(job, flush.number, flush.group_id, its.final, flush.regressed, its.made_at)
        news, flush.alarm = notices.news(stood.get(flush.attempt_id), its.report, about)
        told += news
        was = stood.get(flush.attempt_id)
        if was is None or was.reason != its.report.diagnosis.reason:
            alarms.of_diagnosis(connection, flush.attempt_id, its.report, its.made_at)
    upsert(connection, t.diagnoses, [_row(flush, its) for flush, its in judged])
    update_many(connection, _JUDGED, [_outcome(flush, its) for flush, its in judged])
    notices.enter(connection, told)
    for flush, its in judged:
        for wanted in its.tasks:
            enter(connection, flush.attempt_id, wanted, time.time())


def _group(connection: Connection, flush: Flush, judged: JudgedReport, job: Row[*tuple[Any, ...]], *, known: bool) -> None:
    """Enter a failure in its group. If an attempt that was in a group is no failure any more, remove it."""
    diagnosis = judged.report.diagnosis
    if judged.report.outcome == "failed" and diagnosis.group is not None:
        flush.group_id, flush.regressed = occur(
            connection,
            attempt_id=flush.attempt_id,
            job_id=flush.job_id,
            project=job.project,
            user=job.user,
            cluster=job.cluster,
            diagnosis=diagnosis,
            nodes=diagnosis.suspects.nodes[:_MOST_NODES],
            at=judged.made_at,
            # The agent answers hours later, and often puts a failure into its first group: it failed when it was last heard of.
            failed_at=flush.figures["last_seen"] if judged.improves else judged.made_at,
            price=_price(connection, flush.attempt_id, judged),
        )
    elif known:
        forget_occurrence(connection, flush.attempt_id, judged.made_at)


def _price(connection: Connection, attempt_id: int, judged: JudgedReport) -> Price:
    """What the failure cost. The agent's version of a report costs what the rules' version cost."""
    o, c = t.occurrences.c, t.checkpoints.c
    if judged.ran is None:
        query = select(o.gpu_seconds, o.still, o.back, o.whole).where(o.attempt_id == attempt_id)
        known = connection.execute(query).first()
        return Price(*known) if known is not None else Price()
    affected = judged.report.diagnosis.affected
    saved = _SAVED if affected is None else _SAVED.where(c.step <= affected.first)
    return judged.ran.price(judged.report, connection.execute(saved, {"attempt": attempt_id}).scalar())


def _series(flush: Flush, judged: JudgedReport) -> Iterator[dict[str, Any]]:
    """The job's numbers that are not stored yet. For an improved report all of them are."""
    for name, metric in sorted(judged.report.metrics.items()) if not judged.improves else ():
        if name in judged.as_stored:
            continue
        yield {
            "attempt_id": flush.attempt_id,
            "name": name,
            "count": metric.count,
            "last": metric.last,
            "at_step": metric.at_step,
            "least": metric.min,
            "most": metric.max,
            "points": packed(to_json(metric.points, inf_nan_mode="null")),
        }


def _outcome(flush: Flush, judged: JudgedReport) -> dict[str, Any]:
    """The outcome that the job gets."""
    report, diagnosis = judged.report, judged.report.diagnosis
    known = diagnosis.root_cause is not None or report.outcome == "failed" or notices.alarming(report)
    return {
        "_job": flush.job_id,
        "_number": flush.number,
        "outcome": report.outcome,
        "category": diagnosis.category if known else None,
        "reason": diagnosis.reason if known else None,
        "group_id": flush.group_id,
    }


def _known_already(connection: Connection, flush: Flush) -> bool:
    """Whether the rules say what they said before, and the agent's answer to that is stored. Then that answer stays."""
    judged = flush.judged
    if judged is None or not any(wanted.kind == "ask" for wanted in judged.tasks):
        return False
    known = answered(connection, flush.attempt_id)
    return known is not None and known.result.get("rules") == gist(judged.report)


def gist(report: Report) -> list[Any]:
    """What a report says, in short. If two reports agree on it, they say the same."""
    root = report.diagnosis.root_cause
    place = [root.source, root.line] if root is not None else None
    return [report.outcome, report.diagnosis.by, report.diagnosis.reason, place]


def improve(connection: Connection, attempt_id: int, report: Report, made_at: float, now: float) -> tuple[Flush, bytes] | None:
    """Store ``report`` as the next version of the diagnosis of ``made_at``. Returns (it, the version before).

    None if there is already another one.
    """
    d, a = t.diagnoses.c, t.attempts.c
    before = connection.execute(select(d.report, d.made_at).where(d.attempt_id == attempt_id)).first()
    if before is None or before.made_at != made_at:
        return None
    attempt = connection.execute(select(a.job_id, a.number, a.last_seen).where(a.id == attempt_id)).one()
    judged = JudgedReport(report, True, now, improves=True)
    figures = {"last_seen": attempt.last_seen}
    flush = Flush(attempt.job_id, attempt_id, attempt.number, 0, b"", [], figures, [], judged=judged)
    store(connection, [flush])
    return flush, before.report


def _row(flush: Flush, judged: JudgedReport) -> dict[str, Any]:
    report, diagnosis = judged.report, judged.report.diagnosis
    # The points of the job's numbers have their own table.
    metrics = {name: metric.model_copy(update={"points": []}) for name, metric in report.metrics.items()}
    return {
        "attempt_id": flush.attempt_id,
        "made_at": judged.made_at,
        "final": judged.final,
        "outcome": report.outcome,
        "category": diagnosis.category,
        "reason": diagnosis.reason,
        "confidence": diagnosis.confidence,
        "by": diagnosis.by,
        "rule": diagnosis.rule,
        "summary": diagnosis.summary,
        "group_id": flush.group_id,
        "report": packed(report.model_copy(update={"metrics": metrics}).as_json().encode()),
    }


def unpacked(data: bytes) -> Any:
    return json.loads(zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 28))
