"""Failure groups: their course, where they occurred, and the lines that they began with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, distinct, func, or_, select

from service.store.diagnoses import unpacked
from service.store.pages.asked import Asked, of_groups, rounded_down
from service.store.tables import (
    attempts,
    diagnoses,
    groups,
    occurrence_nodes,
    occurrences,
)


def by_group(connection: Connection, asked: Asked, ids: Sequence[int], buckets: int) -> dict[int, list[int]]:
    """The course of each of these groups."""
    width = (asked.until - asked.since) / buckets
    number = rounded_down(connection, (occurrences.c.at - asked.since) / width).label("number")
    query = (
        select(occurrences.c.group_id, number, func.count())
        .where(*asked.clauses(), occurrences.c.group_id.in_(ids))
        .group_by(occurrences.c.group_id, number)
    )
    found = {group: [0] * buckets for group in ids}
    for group, index, count in connection.execute(query):
        found[group][min(max(0, index), buckets - 1)] += count
    return found


def occurred(asked: Asked) -> Select[Any]:
    """The ids of the groups that have such an occurrence."""
    return select(occurrences.c.group_id).where(*asked.clauses())


def incidents(connection: Connection, asked: Asked, most: int) -> list[dict[str, Any]]:
    """Open groups, the latest first."""
    g = groups.c
    query = select(groups).where(g.state == "open", g.count > 0, *of_groups(asked)).order_by(g.last_seen.desc(), g.id.desc())
    return [dict(row._mapping) for row in connection.execute(query.limit(most))]


def nodes_of(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """How many nodes each group touched."""
    n = occurrence_nodes.c
    rows = connection.execute(
        select(n.group_id, func.count(distinct(n.node))).where(n.group_id.in_(group_ids)).group_by(n.group_id)
    )
    return {row[0]: row[1] for row in rows}


def jobs_of(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """How many jobs each group touched. A job that fails again counts once."""
    o = occurrences.c
    rows = connection.execute(
        select(o.group_id, func.count(distinct(o.job_id))).where(o.group_id.in_(group_ids)).group_by(o.group_id)
    )
    return {row[0]: row[1] for row in rows}


def reach(connection: Connection, group_id: int) -> dict[str, int]:
    """How many jobs and users a group touched. (Its nodes are listed elsewhere.)"""
    o = occurrences.c
    users = select(func.count(distinct(o.user))).where(o.group_id == group_id)  # each count has an index of its own
    return {
        "job_count": jobs_of(connection, [group_id]).get(group_id, 0),
        "user_count": connection.execute(users).scalar_one(),
        "node_count": nodes_of(connection, [group_id]).get(group_id, 0),
    }


def root_lines(connection: Connection, group_id: int, most: int) -> list[dict[str, Any]]:
    """Root-cause lines of the latest jobs of a group, each text once."""
    rows = connection.execute(
        select(diagnoses.c.report)
        .join(occurrences, occurrences.c.attempt_id == diagnoses.c.attempt_id)
        .where(occurrences.c.group_id == group_id)
        .order_by(occurrences.c.at.desc())
        .limit(most * 4)
    )
    found: dict[str, dict[str, Any]] = {}
    for number, (packed,) in enumerate(rows):
        root = unpacked(packed)["diagnosis"]["root_cause"]
        if root is not None and root["text"] not in found and len(found) < most:
            found[root["text"]] = {"ord": f"s{number}", "cut": 0, "fold": None, **root}
    return list(found.values())


def titles(connection: Connection, group_ids: Sequence[int]) -> dict[int, str]:
    """The titles of these groups."""
    rows = connection.execute(select(groups.c.id, groups.c.title).where(groups.c.id.in_(group_ids)))
    return {row.id: row.title for row in rows}


def new_failures(connection: Connection, since: float, until: float, most: int) -> list[dict[str, Any]]:
    """Failure groups that were never seen before this time, or are back after they were resolved; the most expensive first."""
    g = groups.c
    began = and_(g.first_seen >= since, g.first_seen < until)
    fresh = or_(began, and_(g.regressed, g.last_seen >= since, g.last_seen < until))
    query = select(groups).where(g.count > 0, fresh).order_by(g.gpu_seconds_lost.desc(), g.id.desc()).limit(most)
    return [dict(row._mapping) for row in connection.execute(query)]


def of_machines(connection: Connection, names: Sequence[str], but: int) -> dict[str, int]:
    """How many infrastructure failures of other jobs name each of these nodes. ``but``: an attempt of the job that is asked
    about.
    """
    n, o = occurrence_nodes.c, occurrences.c
    own = select(attempts.c.job_id).where(attempts.c.id == but).scalar_subquery()
    rows = connection.execute(
        select(n.node, func.count(distinct(o.job_id)))
        .join(occurrences, o.attempt_id == n.attempt_id)
        .where(n.node.in_(names), o.category == "infrastructure", o.job_id != own)
        .group_by(n.node)
    )
    return {row[0]: row[1] for row in rows}
