"""What pages say of a job beside its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, select

from service.store.diagnoses import unpacked
from service.store.tables import (
    attempts,
    groups,
    jobs,
    occurrence_nodes,
    occurrences,
    series,
)


def losses(connection: Connection, attempt_ids: Sequence[int]) -> dict[int, list[float | None]]:
    """The course of the loss of each of these attempts."""
    s = series.c
    rows = connection.execute(select(s.attempt_id, s.points).where(s.attempt_id.in_(attempt_ids), s.name == "loss"))
    return {attempt: [point[1] for point in unpacked(points)] for attempt, points in rows}


def suspects_of(connection: Connection, attempt_ids: Sequence[int]) -> dict[int, list[str]]:
    """The nodes under suspicion for each of these attempts."""
    n = occurrence_nodes.c
    found: dict[int, list[str]] = {}
    for attempt, node in connection.execute(
        select(n.attempt_id, n.node).where(n.attempt_id.in_(attempt_ids)).order_by(n.attempt_id, n.node)
    ):
        found.setdefault(attempt, []).append(node)
    return found


def alike(connection: Connection, job: dict[str, Any], most: int = 12) -> list[str]:
    """Names of the latest other jobs of the same user that have a loss: runs to compare with."""
    j, a, s = jobs.c, attempts.c, series.c
    query = (
        select(j.name)
        .join(attempts, and_(a.job_id == j.id, a.number == j.attempt))
        .where(j.user == job["user"], j.id != job["id"])
        .where(select(s.name).where(s.attempt_id == a.id, s.name == "loss").exists())
        .order_by(j.last_seen.desc())
        .limit(most)
    )
    return list(connection.execute(query).scalars()) if job["user"] is not None else []


def group_of(connection: Connection, attempt_id: int) -> dict[str, Any] | None:
    """The failure group that an attempt belongs to."""
    found = connection.execute(
        select(groups.c.id, groups.c.title, groups.c.count, groups.c.state)
        .join(occurrences, occurrences.c.group_id == groups.c.id)
        .where(occurrences.c.attempt_id == attempt_id)
    ).first()
    return dict(found._mapping) if found is not None else None
