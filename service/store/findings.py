"""What others found of nodes: who said it, since when, and whether it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, func, or_, select, update

from diagnose.decision.history import NodeFinding
from service.store import tables as t
from service.store.training import alarms
from service.store.upsert import upsert

_MOST = 5000
_KEPT_S = 90 * 86_400.0
_BY_ITS_START = "alertmanager"
"""its alerts of one name may be several, such as of two GPUs: when one began is what it is known by, and its end names that"""


def enter(
    connection: Connection,
    findings: Sequence[tuple[NodeFinding, str | None]],
    over: Sequence[NodeFinding],
    who: str,
    now: float,
) -> None:
    """Enter findings, each with its words. One that is told again counts once, also if its finder gives it a new time.
    What is over ends those of its name.
    """
    f = t.node_findings.c
    findings = _as_open(connection, findings)
    rows = [
        {"node": one.node, "source": one.source, "name": one.name, "at": one.at, "said": said, "who": who, "ended": one.ended}
        for one, said in findings
    ]
    nodes = dict.fromkeys(row["node"] for row in rows)
    if rows:
        upsert(
            connection,
            t.nodes,
            [{"name": node, "state": "ok", "first_seen": now, "last_seen": now, "failures": 0} for node in nodes],
            changes=("name",),  # known nodes stay as they are
        )
        upsert(connection, t.node_findings, rows)
        alarms.of_nodes(connection, findings)
    for one in over:
        same = (f.node == one.node) & (f.source == one.source) & (f.name == one.name) & f.ended.is_(None)
        connection.execute(update(t.node_findings).where(same, f.at <= one.at).values(ended=one.at))
    connection.execute(delete(t.node_findings).where(f.at < now - _KEPT_S, f.ended.is_not(None)))


def _as_open(
    connection: Connection, findings: Sequence[tuple[NodeFinding, str | None]]
) -> list[tuple[NodeFinding, str | None]]:
    """The findings; those that last have the time of the open one of their node, source and name, if there is one."""
    f = t.node_findings.c
    lasts = [one for one, _ in findings if _lasts(one)]
    if not lasts:
        return list(findings)
    query = (
        select(f.node, f.source, f.name, func.min(f.at).label("at"))
        .where(f.ended.is_(None), f.node.in_({one.node for one in lasts}))
        .group_by(f.node, f.source, f.name)
    )
    begun: dict[tuple[str, str, str], float] = {(row.node, row.source, row.name): row.at for row in connection.execute(query)}
    for one in sorted(lasts, key=lambda one: one.at):
        begun.setdefault((one.node, one.source, one.name), one.at)
    return [(replace(one, at=begun[one.node, one.source, one.name]) if _lasts(one) else one, said) for one, said in findings]


def _lasts(finding: NodeFinding) -> bool:
    return finding.ended is None and finding.source != _BY_ITS_START


def since(connection: Connection, at: float) -> tuple[NodeFinding, ...]:
    """What was found since a time, or is not over, for a decision."""
    f = t.node_findings.c
    rows = connection.execute(
        select(f.node, f.source, f.name, f.at, f.ended)
        .where(or_(f.at >= at, f.ended.is_(None)))
        .order_by(f.at.desc())
        .limit(_MOST)
    ).all()
    return tuple(NodeFinding(row.node, row.at, row.source, row.name, row.ended) for row in reversed(rows))


def of_node(connection: Connection, node: str, most: int = 50) -> list[dict[str, Any]]:
    """What was found of one node, the latest first."""
    f = t.node_findings.c
    rows = connection.execute(
        select(f.at, f.source, f.name, f.said, f.who, f.ended).where(f.node == node).order_by(f.at.desc()).limit(most)
    )
    return [dict(row._mapping) for row in rows]
