"""Nodes and the states that they are in."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, case, func, select

from service.store import nodechecks
from service.store.tables import (
    node_checks,
    nodes,
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
