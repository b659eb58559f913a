"""Everything whose name or title has a text in it: jobs, nodes, failure groups, people."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, or_, select

from service.store import reading
from service.store.tables import groups, jobs, nodes


def found(connection: Connection, text: str, most: int) -> dict[str, list[dict[str, Any]]]:
    """Kind -> what matches, the latest first."""
    j, g, n = jobs.c, groups.c, nodes.c
    queries = {
        "nodes": select(n.name, n.state, n.failures, n.last_seen)
        .where(n.name.icontains(text, autoescape=True))
        .order_by(n.failures.desc(), n.name),
        "failures": select(g.id, g.title, g.root_text, g.reason, g.category, g.state, g.last_seen)
        .where(g.count > 0, _said(text))
        .order_by(g.last_seen.desc()),
        "users": select(j.user.label("name"), func.count().label("jobs"), func.max(j.last_seen).label("last_seen"))
        .where(j.user.icontains(text, autoescape=True))
        .group_by(j.user)
        .order_by(func.max(j.last_seen).desc()),
    }
    named = reading.jobs(connection, limit=most, name=text)
    return {"jobs": named} | {
        kind: [dict(row._mapping) for row in connection.execute(query.limit(most))] for kind, query in queries.items()
    }


def _said(text: str) -> Any:
    columns = (groups.c.title, groups.c.root_text, groups.c.reason, groups.c.note, groups.c.assignee)
    return or_(*(column.icontains(text, autoescape=True) for column in columns))
