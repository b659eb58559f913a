"""The checkpoints of a job, with what speaks against them; and the roll-backs that were decided for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, bindparam, select

from diagnose.decision.checkpoints import PastRollback, Saved, alarmed, doubted
from diagnose.decision.scores import fallen
from service.store import tables as t
from service.store.training import alarms, scores

_KNOWN: Final = (
    select(
        t.attempts.c.number,
        t.checkpoints.c.step,
        t.checkpoints.c.path,
        t.checkpoints.c.healthy,
        t.checkpoints.c.why,
        t.checkpoints.c.at,
    )
    .join(t.attempts, t.attempts.c.id == t.checkpoints.c.attempt_id)
    .where(t.attempts.c.job_id == bindparam("job"))
)


def known(connection: Connection, job_id: int) -> list[Saved]:
    """Of all attempts of a job."""
    rows = connection.execute(_KNOWN, {"job": job_id})
    saved = [Saved(row.number, row.step, row.path, row.healthy, row.why, row.at) for row in rows]
    if not saved:
        return []
    return doubted(saved, {**alarmed(saved, alarms.known(connection, job_id)), **fallen(scores.known(connection, job_id))})


def of_job(connection: Connection, job: str) -> list[Saved]:
    """The same, by the name of the job."""
    found = connection.execute(select(t.jobs.c.id).where(t.jobs.c.name == job)).scalar()
    return known(connection, found) if found is not None else []


def rollbacks(connection: Connection, job: str, states: Collection[str]) -> list[tuple[int, PastRollback]]:
    """(action id, roll-back) of a job, for actions in these states."""
    a, x = t.attempts.c, t.actions.c
    rows = connection.execute(
        select(x.id, a.number, x.skip_batches)
        .join(t.attempts, a.id == x.attempt_id)
        .join(t.jobs, t.jobs.c.id == a.job_id)
        .where(t.jobs.c.name == job, x.kind == "rollback_and_skip", x.state.in_(states))
        .order_by(x.id)
    )
    return [(row.id, PastRollback(row.number, *map(int, row.skip_batches))) for row in rows if row.skip_batches]
