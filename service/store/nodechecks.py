"""Results of node checks: which node, when, why, and who had it tested."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from diagnose.decision.history import CheckResult, NodeCheck
from service.store import tables as t
from service.store.reading import record
from service.store.upsert import upsert

_MOST = 5000
_A_QUERY = 500


@dataclass(frozen=True, slots=True)
class Checked:
    """The part of one node in a check."""

    node: str
    result: CheckResult
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of nodes that were tested together."""

    at: float
    nodes: tuple[Checked, ...]
    rounds: int

    def named(self, result: CheckResult) -> list[str]:
        return [one.node for one in self.nodes if one.result == result]


def enter(connection: Connection, check: Check, who: str, now: float) -> None:
    """Enter a check. If the same check is reported again, the last result counts."""
    n = t.nodes.c
    if not check.nodes:
        return
    upsert(
        connection,
        t.nodes,
        [
            {"name": one.node, "state": "ok", "first_seen": check.at, "last_seen": check.at, "failures": 0}
            for one in check.nodes
        ],
        changes=("name",),  # a check is no sign of a job: known nodes stay as they are
    )
    upsert(
        connection,
        t.node_checks,
        [
            {"node": one.node, "at": check.at, "result": one.result, "why": one.why, "who": who,
             "tested": len(check.nodes), "rounds": check.rounds}
            for one in check.nodes
        ],
    )  # fmt: skip
    for one in check.nodes:
        if one.result != "good":
            values = {"state": "suspect", "why": f"node check: {one.why or one.result}", "changed": now}
            connection.execute(update(t.nodes).where(n.name == one.node, n.state.in_(("ok", "suspect"))).values(**values))
    good = check.named("good")
    for start in range(0, len(good), _A_QUERY):
        # A node that passes is no longer suspect. A node that is isolated only comes back by a decision.
        cleared = and_(n.name.in_(good[start : start + _A_QUERY]), n.state == "suspect")
        before = or_(n.last_failure.is_(None), n.last_failure < check.at)
        values = {"state": "ok", "why": "it passed a node check", "changed": now}
        connection.execute(update(t.nodes).where(cleared, before).values(**values))
    detail = {
        "tested": len(check.nodes),
        "rounds": check.rounds,
        **{kind: check.named(kind)[:100] for kind in ("faulty", "slow", "suspect")},
    }
    record(connection, who, "nodes.checked", "nodes", detail, now)


def isolated(connection: Connection, names: Collection[str]) -> list[str]:
    """Which of ``names`` are out of service."""
    n = t.nodes.c
    rows = connection.execute(select(n.name).where(n.state == "isolated").order_by(n.name)).scalars()
    return [name for name in rows if name in names]


def passed_while_isolated(connection: Connection, at: float) -> list[str]:
    """Nodes that are out of service and have passed a check after ``at``, and after they were taken out."""
    n, c = t.nodes.c, t.node_checks.c
    rows = connection.execute(
        select(n.name)
        .distinct()
        .join(t.node_checks, c.node == n.name)
        .where(n.state == "isolated", c.at >= at, c.result == "good", or_(n.changed.is_(None), c.at > n.changed))
        .order_by(n.name)
    )
    return list(rows.scalars())


def since(connection: Connection, at: float) -> tuple[NodeCheck, ...]:
    """The checks since a time, oldest first, for a decision."""
    c = t.node_checks.c
    rows = connection.execute(select(c.node, c.at, c.result).where(c.at >= at).order_by(c.at.desc()).limit(_MOST)).all()
    return tuple(NodeCheck(row.node, row.at, row.result) for row in reversed(rows))


def of_node(connection: Connection, node: str, most: int = 50) -> list[dict[str, Any]]:
    """The checks of one node, the latest first."""
    c = t.node_checks.c
    rows = connection.execute(
        select(c.at, c.result, c.why, c.who, c.tested, c.rounds).where(c.node == node).order_by(c.at.desc()).limit(most)
    )
    return [dict(row._mapping) for row in rows]


def last_of(name: ColumnElement[str]) -> ColumnElement[bool]:
    """The condition that joins a node with its last check: two look-ups in an index per node, however many checks there
    were.
    """
    earlier = t.node_checks.alias()
    last = select(func.max(earlier.c.at)).where(earlier.c.node == name).scalar_subquery()
    return and_(t.node_checks.c.node == name, t.node_checks.c.at == last)


def latest(connection: Connection) -> dict[str, dict[str, Any]]:
    """The last check of each node that was tested."""
    c = t.node_checks.c
    rows = connection.execute(
        select(c.node, c.at, c.result, c.why).select_from(t.nodes).join(t.node_checks, last_of(t.nodes.c.name))
    )
    return {row.node: dict(row._mapping) for row in rows}
