"""What the evaluations of checkpoints took, and where their time went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, delete, func, select

from service.store import tables as t
from service.store.upsert import upsert

_MOST = 1000
"""per attempt: those of the latest steps"""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Of one checkpoint on all data sets. Times are those of all places together, but for ``took_s`` and ``expected_s``."""

    step: int
    data_sets: int
    missing: int
    """data sets without a score"""
    took_s: float
    expected_s: float | None
    loading_s: float
    inference_s: float
    metric_s: float
    """of all metrics; they run beside the places"""
    failed_s: float
    waiting_s: float
    at: float


def enter(connection: Connection, attempt_id: int, one: Evaluation) -> None:
    """Store it. If it is told again, the last report counts."""
    e = t.evaluations.c
    upsert(connection, t.evaluations, [{"attempt_id": attempt_id, **asdict(one)}])
    if connection.execute(select(func.count()).where(e.attempt_id == attempt_id)).scalar_one() > _MOST:
        lowest = select(func.min(e.step)).where(e.attempt_id == attempt_id).scalar_subquery()
        connection.execute(delete(t.evaluations).where(e.attempt_id == attempt_id, e.step == lowest))


def known_of(connection: Connection, job: str) -> dict[tuple[int, int], Evaluation]:
    """(attempt, step) -> the evaluation, of all attempts of a job."""
    e, a = t.evaluations.c, t.attempts.c
    rows = connection.execute(
        select(a.number, *(e[field.name] for field in fields(Evaluation)))
        .join(t.attempts, a.id == e.attempt_id)
        .join(t.jobs, t.jobs.c.id == a.job_id)
        .where(t.jobs.c.name == job)
    )
    return {(row[0], row[1]): Evaluation(*row[1:]) for row in rows}
