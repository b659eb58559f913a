"""What training scripts report: checkpoints and progress."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from service.store import tables as t
from service.store.upsert import upsert

_MOST = 1000
"""checkpoints that are stored per attempt: the latest steps"""


def checkpoint(
    connection: Connection,
    attempt: int,
    *,
    step: int,
    path: str,
    healthy: bool | None,
    at: float,
    why: str | None = None,
    cost_s: float | None = None,
) -> None:
    """Store a checkpoint. There is one per step and attempt; its last report counts, and its first says when it was saved.

    What a later attempt finds bad is bad also where an earlier attempt reported it, by its path.
    """
    c, a = t.checkpoints.c, t.attempts.c
    if healthy is False:
        job = select(a.job_id).where(a.id == attempt).scalar_subquery()
        same = c.attempt_id.in_(select(a.id).where(a.job_id == job)) & (c.path == path)
        connection.execute(update(t.checkpoints).where(same).values(healthy=False, why=why))
    same = (c.attempt_id == attempt) & (c.step == step) & (c.path == path)
    before = connection.execute(select(c.at, c.cost_s).where(same)).first()
    if before is not None:
        at, cost_s = min(at, before.at), cost_s if cost_s is not None else before.cost_s
    row = {"attempt_id": attempt, "step": step, "path": path, "healthy": healthy, "at": at, "why": why, "cost_s": cost_s}
    upsert(connection, t.checkpoints, [row])
    many = connection.execute(select(func.count()).where(c.attempt_id == attempt)).scalar_one()
    if many > _MOST:
        kept = (
            select(c.step).where(c.attempt_id == attempt).order_by(c.step.desc()).limit(1).offset(_MOST - 1).scalar_subquery()
        )
        connection.execute(delete(t.checkpoints).where(c.attempt_id == attempt, c.step < kept))


def progress(connection: Connection, attempt: int, *, step: int, loss: float | None, loss_is: str | None, at: float) -> None:
    """Store the latest progress of an attempt. A late report does not set it back."""
    p = t.progress.c
    known = connection.execute(select(p.at).where(p.attempt_id == attempt)).scalar()
    if known is None or at >= known:
        upsert(connection, t.progress, [{"attempt_id": attempt, "step": step, "loss": loss, "loss_is": loss_is, "at": at}])


def latest_progress(connection: Connection, job: str) -> dict[str, Any] | None:
    """Of the latest attempt of the job that reported any."""
    p, a = t.progress.c, t.attempts.c
    row = connection.execute(
        select(a.number.label("attempt"), p.step, p.loss, p.loss_is, p.at)
        .join(t.attempts, a.id == p.attempt_id)
        .join(t.jobs, t.jobs.c.id == a.job_id)
        .where(t.jobs.c.name == job)
        .order_by(a.number.desc())
        .limit(1)
    ).first()
    return dict(row._mapping) if row is not None else None
