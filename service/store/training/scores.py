"""What evaluations say of checkpoints."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, delete, func, select

from diagnose.decision.scores import Score
from service.store import tables as t
from service.store.upsert import upsert

_MOST = 5000
"""scores that are stored per attempt: those of the latest steps"""


def attempt_of(connection: Connection, job: str, number: int | None, step: int, path: str | None) -> tuple[int, int] | None:
    """(key, number) of the attempt that a score is about: the one that is named; else the latest that reported this
    checkpoint; else the latest. None if it is not known."""
    a, c = t.attempts.c, t.checkpoints.c
    query = select(a.id, a.number).join(t.jobs, t.jobs.c.id == a.job_id).where(t.jobs.c.name == job).order_by(a.number.desc())
    if number is not None:
        row = connection.execute(query.where(a.number == number)).first()
        return (row.id, row.number) if row is not None else None
    saved = query.join(t.checkpoints, c.attempt_id == a.id).where(c.step == step)
    tries = [saved.where(c.path == path), saved, query] if path is not None else [saved, query]
    found = next((row for one in tries if (row := connection.execute(one.limit(1)).first()) is not None), None)
    return (found.id, found.number) if found is not None else None


def enter(connection: Connection, attempt_id: int, score: Score, at: float) -> None:
    """Store a score. If it is told again, the last report counts."""
    s = t.scores.c
    row = {
        "attempt_id": attempt_id,
        "step": score.step,
        "data_set": score.data_set,
        "metric": score.metric,
        "value": score.value,
        "noise": score.noise,
        "higher": score.higher,
        "at": at,
    }
    upsert(connection, t.scores, [row])
    if connection.execute(select(func.count()).where(s.attempt_id == attempt_id)).scalar_one() > _MOST:
        lowest = select(func.min(s.step)).where(s.attempt_id == attempt_id).scalar_subquery()
        connection.execute(delete(t.scores).where(s.attempt_id == attempt_id, s.step == lowest))


def known(connection: Connection, job_id: int) -> list[Score]:
    """Of all attempts of a job, the lowest step first."""
    s, a = t.scores.c, t.attempts.c
    rows = connection.execute(
        select(a.number, s.step, s.data_set, s.metric, s.value, s.noise, s.higher, s.at)
        .join(t.attempts, a.id == s.attempt_id)
        .where(a.job_id == job_id)
        .order_by(s.step, s.data_set, s.metric)
    )
    return [Score(*row) for row in rows]


def known_of(connection: Connection, job: str) -> list[Score]:
    """The same, by the name of the job."""
    found = connection.execute(select(t.jobs.c.id).where(t.jobs.c.name == job)).scalar()
    return known(connection, found) if found is not None else []


def by_checkpoint(connection: Connection, job: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """(attempt, step) -> its scores, as the API tells them."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for one in known_of(connection, job):
        found[one.attempt, one.step].append(
            {
                "data_set": one.data_set,
                "metric": one.metric,
                "score": one.value,
                "noise": one.noise,
                "direction": "higher" if one.higher else "lower",
                "at": one.at,
            }
        )
    return found
