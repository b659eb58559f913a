"""What fails, how often, and at what price, over a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from service.store.pages.actions import waiting
from service.store.pages.asked import Asked, of_groups, of_jobs, rounded_down
from service.store.tables import (
    attempts,
    groups,
    jobs,
    occurrences,
)

_MOST_OPTIONS = 100


def over_time(connection: Connection, asked: Asked, buckets: int) -> list[dict[str, int]]:
    """Failures by category in ``buckets`` equal parts of the time."""
    width = (asked.until - asked.since) / buckets
    number = rounded_down(connection, (occurrences.c.at - asked.since) / width).label("number")
    query = (
        select(number, occurrences.c.category, func.count()).where(*asked.clauses()).group_by(number, occurrences.c.category)
    )
    found: list[dict[str, int]] = [{} for _ in range(buckets)]
    for index, category, count in connection.execute(query):
        part = found[min(max(0, index), buckets - 1)]
        part[category] = part.get(category, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """What one reason cost."""

    category: str
    reason: str
    count: int
    gpu_seconds: float


def by_reason(connection: Connection, asked: Asked) -> list[Cost]:
    """Reasons, the most expensive first. If no job says how many GPUs it has, the most frequent first."""
    lost = func.coalesce(func.sum(occurrences.c.gpu_seconds), 0.0)
    query: Select[Any] = (
        select(occurrences.c.category, occurrences.c.reason, func.count(), lost)
        .where(*asked.clauses())
        .group_by(occurrences.c.category, occurrences.c.reason)
        .order_by(lost.desc(), func.count().desc(), occurrences.c.reason)
    )
    return [Cost(*row) for row in connection.execute(query)]


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers at the top of the page."""

    failures: int
    before: int | None
    """in the stretch of the same length before; None if no job is known of that time"""
    gpu_seconds: float
    whole: float
    """the part of it of attempts without a known checkpoint"""
    open: int
    running: int
    silent: int
    waiting: int
    bytes_in: int
    bytes_kept: int


def any_job_before(connection: Connection, moment: float) -> bool:
    """Whether the service knew a job before this: else nothing is known of the time before. The first that it knows was entered
    first; when it was heard of last says nothing, as a job may run for weeks.
    """
    first = connection.execute(select(jobs.c.first_seen).order_by(jobs.c.id).limit(1)).scalar()
    return first is not None and first < moment


def figures(connection: Connection, asked: Asked, silent_before: float) -> Figures:
    """``silent_before``: a running job is silent if its last line is older."""
    lost_each = occurrences.c.gpu_seconds
    count, lost, whole = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(lost_each), 0.0),
            func.coalesce(func.sum(case((occurrences.c.whole, lost_each), else_=0.0)), 0.0),
        ).where(*asked.clauses())
    ).one()
    length = asked.until - asked.since
    earlier = Asked(asked.since - length, asked.since, asked.cluster, asked.user, asked.category, asked.reason, asked.node)
    before = connection.execute(select(func.count()).select_from(occurrences).where(*earlier.clauses())).scalar_one()
    known = before or any_job_before(connection, asked.since)
    running = select(func.count()).select_from(jobs).where(jobs.c.state == "running", *of_jobs(asked))
    kept = select(func.coalesce(func.sum(attempts.c.bytes_in), 0), func.coalesce(func.sum(attempts.c.bytes_kept), 0)).where(
        attempts.c.last_seen >= asked.since, attempts.c.last_seen < asked.until
    )
    if asked.cluster or asked.user or asked.node:
        # "+ 0": the time is looked up in an index, and not each of these jobs.
        kept = kept.where((attempts.c.job_id + 0).in_(select(jobs.c.id).where(*of_jobs(asked))))
    open_ = select(func.count()).select_from(groups).where(groups.c.state == "open", groups.c.count > 0, *of_groups(asked))
    bytes_in, bytes_kept = connection.execute(kept).one()
    return Figures(
        failures=count,
        before=before if known else None,
        gpu_seconds=lost,
        whole=whole,
        open=connection.execute(open_).scalar_one(),
        running=connection.execute(running).scalar_one(),
        silent=connection.execute(running.where(jobs.c.last_seen < silent_before)).scalar_one(),
        waiting=waiting(connection, asked),
        bytes_in=int(bytes_in),
        bytes_kept=int(bytes_kept),
    )


def options(connection: Connection, since: float) -> dict[str, list[str]]:
    """The values that filters can have."""
    clusters = select(jobs.c.cluster).distinct().where(jobs.c.cluster.is_not(None)).order_by(jobs.c.cluster)
    # Each failure has a group, and those are few.
    reasons = (
        select(groups.c.reason).distinct().where(groups.c.last_seen >= since, groups.c.count > 0).order_by(groups.c.reason)
    )
    return {
        "clusters": list(connection.execute(clusters.limit(_MOST_OPTIONS)).scalars()),
        "reasons": list(connection.execute(reasons.limit(_MOST_OPTIONS)).scalars()),
    }
