"""Actions, those that wait for a person first, and the trail of what was done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, Text, cast, exists, func, or_, select

from service.store.actions import aftermath, aftermaths, still_out
from service.store.diagnoses import unpacked
from service.store.pages.asked import Asked
from service.store.tables import (
    actions,
    attempts,
    audit,
    diagnoses,
    groups,
    jobs,
    occurrence_nodes,
    occurrences,
    sources,
)

ACTS = (
    "restart",
    "isolate_and_restart",
    "rollback_and_skip",
    "retry_later",
    "isolate",
    "release",
    "check",
    "reboot",
    "hold",
)
"""actions that something carries out; the others say what a person should do"""
_WAITS = (
    actions.c.state == "proposed",
    actions.c.kind.in_(ACTS),
    func.coalesce(actions.c.mode, "approve") != "observe",  # nobody can approve what a policy only observes
)


def waiting(connection: Connection, asked: Asked | None = None) -> int:
    """Number of actions that wait for a person's approval."""
    query = select(func.count()).select_from(actions).where(*_WAITS)
    return int(connection.execute(_of_actions(query, asked) if asked is not None else query).scalar_one())


def to_approve(connection: Connection, asked: Asked, most: int) -> list[dict[str, Any]]:
    """The actions that wait for a person's approval, the oldest first."""
    query = _actions().where(*_WAITS).order_by(actions.c.created, actions.c.id).limit(most)
    return with_roots(connection, [dict(row._mapping) for row in connection.execute(_of_actions(query, asked))])


def _of_actions(query: Select[Any], asked: Asked) -> Select[Any]:
    a, o = actions.c, occurrences.c
    for column, wanted in (
        (o.cluster, asked.cluster),
        (o.user, asked.user),
        (o.category, asked.category),
        (o.reason, asked.reason),
    ):
        if wanted is not None:
            query = query.where(exists().where(o.attempt_id == a.attempt_id, column == wanted))
    if asked.node is not None:
        blamed = select(occurrence_nodes.c.attempt_id).where(occurrence_nodes.c.node == asked.node)
        alone = cast(a.nodes, Text).contains(json.dumps(asked.node), autoescape=True)
        query = query.where(or_(a.attempt_id.in_(blamed), alone))
    return query


def trail(connection: Connection, subject: str, most: int = 100) -> list[dict[str, Any]]:
    """The audit trail of one thing, the latest first."""
    rows = connection.execute(
        select(audit.c.at, audit.c.who, audit.c.what, audit.c.detail)
        .where(audit.c.subject == subject)
        .order_by(audit.c.at.desc(), audit.c.id.desc())
        .limit(most)
    )
    return [dict(row._mapping) for row in rows]


def action(connection: Connection, action_id: int) -> dict[str, Any] | None:
    """One action with its job, and what became of that."""
    found = connection.execute(_actions().where(actions.c.id == action_id)).first()
    return (
        {**found._mapping, "aftermath": aftermath(connection, action_id), "out": still_out(connection, found.key)}
        if found is not None
        else None
    )


def some_actions(connection: Connection, *, limit: int, state: str | None, before: int | None) -> list[dict[str, Any]]:
    """Actions with what they are about, the latest first."""
    query = _actions().order_by(actions.c.id.desc()).limit(limit)
    if state is not None:
        query = query.where(actions.c.state == state)
    if before is not None:
        query = query.where(actions.c.id < before)
    return with_roots(connection, [dict(row._mapping) for row in connection.execute(query)])


def of_node(connection: Connection, node: str, most: int = 40) -> list[dict[str, Any]]:
    """Actions that name a node, the latest first."""
    named = cast(actions.c.nodes, Text).contains(json.dumps(node), autoescape=True)
    rows = connection.execute(_actions().where(named, actions.c.kind.in_(ACTS)).order_by(actions.c.id.desc()).limit(most))
    return with_roots(connection, [dict(row._mapping) for row in rows])


def with_roots(connection: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with ``root``: the line of its own job that it rests on, as source, line, text and node. A failure group shows
    the line of another job.
    """
    known = {row["id"]: _root(row["basis"]) for row in rows}
    asked = {row["attempt_id"] for row in rows if known[row["id"]] is None and row["attempt_id"] is not None}
    reports = connection.execute(select(diagnoses.c.attempt_id, diagnoses.c.report).where(diagnoses.c.attempt_id.in_(asked)))
    found = {attempt: unpacked(report)["diagnosis"]["root_cause"] for attempt, report in reports} if asked else {}
    return [{**row, "root": known[row["id"]] or found.get(row["attempt_id"])} for row in rows]


def _root(basis: dict[str, Any] | None) -> dict[str, Any] | None:
    """The root-cause line that an action's decision had before it."""
    evidence = ((basis or {}).get("decision") or {}).get("evidence") or {}
    return evidence.get("root_cause") or None


def jobs_on(connection: Connection, nodes: Sequence[str], but: int | None, most: int = 50) -> list[dict[str, Any]]:
    """Jobs that run on these nodes, without the attempt ``but``."""
    query = (
        select(jobs.c.name, jobs.c.user, attempts.c.number)
        .distinct()
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .join(sources, sources.c.attempt_id == attempts.c.id)
        .where(sources.c.node.in_(nodes), attempts.c.state == "running")
        .order_by(jobs.c.name)
        .limit(most)
    )
    if but is not None:
        query = query.where(attempts.c.id != but)
    return [dict(row._mapping) for row in connection.execute(query)]


def _actions() -> Select[Any]:
    return (
        select(actions, jobs.c.name.label("job"), attempts.c.number.label("attempt"), groups.c.title, groups.c.root_text)
        .outerjoin(attempts, attempts.c.id == actions.c.attempt_id)
        .outerjoin(jobs, jobs.c.id == attempts.c.job_id)
        .outerjoin(groups, groups.c.id == actions.c.group_id)
    )


def decided(connection: Connection, since: float, until: float, most: int) -> list[dict[str, Any]]:
    """Actions that somebody or the policy decided, the latest first: only what is counted of them, with what came of it."""
    a = actions.c
    columns = select(a.id, a.kind, a.state, a.decided_by).where(*_decided(since, until))
    rows = connection.execute(columns.order_by(a.changed.desc(), a.id.desc()).limit(most)).all()
    after = aftermaths(connection, [row.id for row in rows])
    return [{**row._mapping, "aftermath": after.get(row.id)} for row in rows]


def done(connection: Connection, since: float, until: float, most: int) -> list[dict[str, Any]]:
    """The same with all that is shown of them."""
    query = _actions().where(*_decided(since, until)).order_by(actions.c.changed.desc(), actions.c.id.desc())
    rows = connection.execute(query.limit(most)).all()
    after = aftermaths(connection, [row.id for row in rows])
    return [{**row._mapping, "aftermath": after.get(row.id)} for row in rows]


def _decided(since: float, until: float) -> tuple[Any, ...]:
    a = actions.c
    return a.changed >= since, a.changed < until, a.kind.in_(ACTS), a.state.not_in(("proposed", "expired"))
