"""Which failures a page is about: the stretch of time and the filters, as conditions of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, cast, exists, func, select

from service.store.tables import (
    attempts,
    groups,
    jobs,
    occurrence_nodes,
    occurrences,
    sources,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which failures to look at. None: all."""

    since: float
    until: float
    cluster: str | None = None
    user: str | None = None
    category: str | None = None
    reason: str | None = None
    node: str | None = None
    group: int | None = None

    def clauses(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = [occurrences.c.at >= self.since, occurrences.c.at < self.until]
        for column, wanted in (
            (occurrences.c.cluster, self.cluster),
            (occurrences.c.user, self.user),
            (occurrences.c.category, self.category),
            (occurrences.c.reason, self.reason),
            (occurrences.c.group_id, self.group),
        ):
            if wanted is not None:
                found.append(column == wanted)
        if self.node is not None:
            named = and_(occurrence_nodes.c.attempt_id == occurrences.c.attempt_id, occurrence_nodes.c.node == self.node)
            found.append(exists().where(named))
        return found


def rounded_down(connection: Connection, value: ColumnElement[Any]) -> ColumnElement[int]:
    """``value`` rounded down. A cast rounds to the nearest in PostgreSQL and down in SQLite."""
    return cast(func.floor(value) if connection.dialect.name == "postgresql" else value, Integer)


def of_jobs(asked: Asked) -> list[ColumnElement[bool]]:
    """The condition on jobs. The failure of a running job is not known."""
    found: list[ColumnElement[bool]] = []
    if asked.cluster is not None:
        found.append(jobs.c.cluster == asked.cluster)
    if asked.user is not None:
        found.append(jobs.c.user == asked.user)
    if asked.node is not None:
        ran = select(attempts.c.job_id).join(sources, sources.c.attempt_id == attempts.c.id)
        found.append(jobs.c.id.in_(ran.where(sources.c.node == asked.node)))
    return found


def of_groups(asked: Asked) -> list[ColumnElement[bool]]:
    """The condition on groups, whenever they occurred."""
    found: list[ColumnElement[bool]] = []
    for column, wanted in ((groups.c.category, asked.category), (groups.c.reason, asked.reason)):
        if wanted is not None:
            found.append(column == wanted)
    for column, wanted in ((occurrences.c.cluster, asked.cluster), (occurrences.c.user, asked.user)):
        if wanted is not None:
            found.append(groups.c.id.in_(select(occurrences.c.group_id).where(column == wanted)))
    if asked.node is not None:
        found.append(groups.c.id.in_(select(occurrence_nodes.c.group_id).where(occurrence_nodes.c.node == asked.node)))
    return found
