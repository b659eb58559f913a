"""Nodes and the states that they are in."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, case, exists, func, or_, select, union

from service.store import nodechecks
from service.store.tables import (
    attempts,
    diagnoses,
    isolations,
    jobs,
    node_checks,
    nodes,
    occurrence_nodes,
    sources,
)


def node_states(connection: Connection) -> dict[str, int]:
    """How many nodes are in each state."""
    rows = connection.execute(select(nodes.c.state, func.count()).group_by(nodes.c.state))
    return {"ok": 0, "suspect": 0, "isolated": 0} | {row.state: row[1] for row in rows}


def some_nodes(
    connection: Connection, *, limit: int, name: str | None, state: str | None, check: str | None = None
) -> list[dict[str, Any]]:
    """Nodes, those with most failures first. ``check``: the result of the last node check, or "none"."""
    n = nodes.c
    order = case((n.state == "isolated", 0), (n.state == "suspect", 1), else_=2)
    query = select(nodes).order_by(order, n.failures.desc(), n.name).limit(limit)
    if name:
        query = query.where(n.name.icontains(name, autoescape=True))
    if state:
        query = query.where(n.state == state)
    if check == "none":
        query = query.where(n.name.not_in(select(node_checks.c.node)))
    elif check:
        query = query.select_from(nodes.join(node_checks, nodechecks.last_of(n.name))).where(node_checks.c.result == check)
    return [dict(row._mapping) for row in connection.execute(query)]


def jobs_of(connection: Connection, node: str, since: float, until: float, most: int = 60) -> list[dict[str, Any]]:
    """Attempts that ran on a node, the latest first: from when to when, and how they ended. A log that is sent without the name
    of its node tells it only by a diagnosis. One that names its nodes may accuse others, on which it never ran.
    """
    a, d = attempts.c, diagnoses.c
    accused = occurrence_nodes.c
    told = exists().where(sources.c.attempt_id == accused.attempt_id, sources.c.node.is_not(None))
    here = union(
        select(sources.c.attempt_id).where(sources.c.node == node),
        select(accused.attempt_id).where(accused.node == node, ~told),
    )
    rows = connection.execute(
        select(
            jobs.c.name.label("job"),
            a.number.label("attempt"),
            a.started_at,
            a.ended_at,
            a.last_seen,
            a.state,
            a.outcome,
            d.reason,
            d.confidence,
        )
        .join(jobs, jobs.c.id == a.job_id)
        .outerjoin(diagnoses, d.attempt_id == a.id)
        .where(a.id.in_(here), a.last_seen >= since, a.started_at <= until)
        .order_by(a.started_at.desc())
        .limit(most)
    )
    return [dict(row._mapping) for row in rows]


def isolations_of(connection: Connection, node: str, since: float) -> list[dict[str, Any]]:
    """When a node was out of service, the latest first; ``released`` is None while it still is."""
    x = isolations.c
    mine = and_(x.node == node, or_(x.released.is_(None), x.released >= since))
    rows = connection.execute(select(x.at, x.released, x.by).where(mine).order_by(x.at.desc()).limit(100))
    return [dict(row._mapping) for row in rows]
