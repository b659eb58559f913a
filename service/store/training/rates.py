"""How long a job runs between failures, from what happened here to all jobs lately."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, case, func, select

from diagnose.checkpoints.when import Between, Past, Present, between_failures, present
from service.store import tables as t

if TYPE_CHECKING:
    from service.store import Store

_BACK_S = 60 * 86_400.0
_LASTS_S = 600.0
_UNKNOWN_S = 15.0
_MOST_SIZES = 20_000
_SAVES = 50


def past(connection: Connection, now: float) -> list[Past]:
    """What happened to jobs that made steps: for each size how long they ran, and how often they failed."""
    a, j = t.attempts.c, t.jobs.c
    ran = func.sum(func.coalesce(a.ended_at, a.last_seen) - a.started_at)
    failures = func.sum(case((a.outcome == "failed", 1), else_=0))
    rows = connection.execute(
        select(j.gpus, ran.label("seconds"), failures.label("failures"))
        .join(t.jobs, j.id == a.job_id)
        .where(j.last_seen > now - _BACK_S, a.last_seen > now - _BACK_S, j.gpus > 0, a.training_at.is_not(None))
        .group_by(j.gpus)
        .limit(_MOST_SIZES)
    )
    return [Past(row.gpus, max(0.0, row.seconds) / 3600, int(row.failures)) for row in rows]


def latest(connection: Connection, job: str) -> Any | None:
    """The latest attempt of a job: its ``id`` and ``job_id``."""
    a, j = t.attempts.c, t.jobs.c
    query = select(a.id, a.job_id).join(t.jobs, (j.id == a.job_id) & (j.attempt == a.number)).where(j.name == job)
    return connection.execute(query).first()


def present_of(connection: Connection, attempt_id: int, between: Between | None) -> Present | None:
    """What the interval of an attempt costs; None if it saved too seldom to have one, or its size is not known."""
    c = t.checkpoints.c
    rows = connection.execute(
        select(c.at, c.cost_s).where(c.attempt_id == attempt_id).order_by(c.step.desc()).limit(_SAVES)
    ).all()
    costs = [row.cost_s for row in reversed(rows) if row.cost_s is not None]
    return present([row.at for row in rows], costs, between.seconds) if between is not None else None


class Rates:
    """The past, looked at again when it is ten minutes old, by a reader: trainings ask with every step. On the event loop."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._until = 0.0
        self._past: list[Past] = []
        self._of_job: dict[int, tuple[Between | None, float]] = {}
        """and until when that holds"""

    async def of_job(self, store: Store, job_id: int) -> Between | None:
        """None: nobody said how many GPUs it has."""
        if self._steady() >= self._until:
            self._until = self._steady() + _LASTS_S  # who asks meanwhile is answered by what was known before
            self._past = await store.aread(lambda connection: past(connection, time.time()))
            self._of_job = {}
        known, until = self._of_job.get(job_id, (None, 0.0))
        if self._steady() < until:
            return known
        gpus: Any = await store.aread(lambda connection: _gpus(connection, job_id))
        found = between_failures(gpus, self._past) if gpus else None
        # its labels may come with the next push
        self._of_job[job_id] = found, self._steady() + (_LASTS_S if gpus else _UNKNOWN_S)
        return found


def _gpus(connection: Connection, job_id: int) -> Any:
    return connection.execute(select(t.jobs.c.gpus).where(t.jobs.c.id == job_id)).scalar()
