"""Queries of pages and scripts: jobs, their lines, failure groups, nodes. A page begins after a key (``before``), not at a
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    cast,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from service.store import tables as t
from service.store.diagnoses import unpacked

Rows = list[dict[str, Any]]
AT_RISK = 0.5
"""a running job is at risk if its diagnosis is at least so sure"""
Place = tuple[float, int]
"""time and id: where a page ended"""


def _dict(row: Row[*tuple[Any, ...]]) -> dict[str, Any]:
    return dict(row._mapping)


def jobs(
    connection: Connection,
    *,
    limit: int,
    before: Place | None = None,
    since: float | None = None,
    equal: dict[str, str] | None = None,
    name: str | None = None,
    node: str | None = None,
    at_risk: bool = False,
) -> Rows:
    """Jobs, newest first. ``equal``: column -> value; ``name``: a part of the job's name; ``node``: one that it ran on;
    ``at_risk``: only running ones in which something is wrong.
    """
    j, a, p = t.jobs.c, t.attempts.c, t.progress.c
    query = (
        select(t.jobs, a.id.label("attempt_id"), func.coalesce(a.step, p.step).label("step"),
               func.coalesce(a.loss, p.loss).label("loss"), a.phase, a.started_at, a.ended_at, a.exit_code,
               a.lines_in, a.bytes_in, a.lines_kept, a.bytes_kept, t.diagnoses.c.confidence)
        .join(t.attempts, and_(a.job_id == j.id, a.number == j.attempt))
        .outerjoin(t.progress, p.attempt_id == a.id)
        .outerjoin(t.diagnoses, t.diagnoses.c.attempt_id == a.id)
        .order_by(j.last_seen.desc(), j.id.desc())
        .limit(limit)
    )  # fmt: skip
    if before is not None:
        query = query.where(tuple_(j.last_seen, j.id) < before)
    if since is not None:
        query = query.where(j.last_seen >= since)
    for column, value in (equal or {}).items():
        query = query.where(j[column] == value)
    if name:
        # The names are read in their index, and not row by row.
        query = query.where(j.id.in_(select(j.id).where(j.name.icontains(name, autoescape=True))))
    if at_risk:
        wrong = and_(j.reason.is_not(None), j.reason != "healthy", t.diagnoses.c.confidence >= AT_RISK)
        query = query.where(j.state == "running", wrong)
    if node:
        ran = select(t.attempts.c.job_id).join(t.sources, t.sources.c.attempt_id == t.attempts.c.id)
        query = query.where(j.id.in_(ran.where(t.sources.c.node == node)))
    return [_dict(row) for row in connection.execute(query)]


def job(connection: Connection, name: str) -> dict[str, Any] | None:
    """A job with its attempts."""
    found = connection.execute(select(t.jobs).where(t.jobs.c.name == name)).first()
    if found is None:
        return None
    a, p = t.attempts.c, t.progress.c
    attempts = connection.execute(
        select(*[column for column in a if column.name not in ("snapshot", "hits", "job_id", "lsn", "step", "loss")],
               # if the log does not say it, the training may have reported it
               func.coalesce(a.step, p.step).label("step"), func.coalesce(a.loss, p.loss).label("loss"),
               t.diagnoses.c.category, t.diagnoses.c.reason, t.diagnoses.c.confidence, t.diagnoses.c.summary,
               t.diagnoses.c.final)
        .outerjoin(t.diagnoses, t.diagnoses.c.attempt_id == a.id)
        .outerjoin(t.progress, p.attempt_id == a.id)
        .where(a.job_id == found.id)
        .order_by(a.number.desc())
        .limit(200)
    )  # fmt: skip
    return {**_dict(found), "attempts": [_dict(row) for row in attempts]}


def attempt_id(connection: Connection, name: str, number: int | None) -> int | None:
    """The key of an attempt; None for ``number`` means the latest."""
    a, j = t.attempts.c, t.jobs.c
    query = select(a.id).join(t.jobs, j.id == a.job_id).where(j.name == name)
    query = query.where(a.number == (j.attempt if number is None else number))
    return connection.execute(query).scalar()


def attempt_number(connection: Connection, name: str, number: int | None) -> int | None:
    """The number of an existing attempt; None for ``number`` means the latest."""
    a, j = t.attempts.c, t.jobs.c
    query = select(a.number).join(t.jobs, j.id == a.job_id).where(j.name == name)
    return connection.execute(query.where(a.number == (j.attempt if number is None else number))).scalar()


def report(connection: Connection, attempt: int) -> dict[str, Any] | None:
    """The stored report, whether it is final, and when it was made."""
    d = t.diagnoses.c
    row = connection.execute(select(d.report, d.final, d.made_at).where(d.attempt_id == attempt)).first()
    if row is None:
        return None
    whole = unpacked(row.report)
    for one in series(connection, attempt):
        if one["name"] in whole["metrics"]:
            whole["metrics"][one["name"]]["points"] = one["points"]
    return {"report": whole, "final": row.final, "made_at": row.made_at}


def lines(
    connection: Connection,
    attempt: int,
    *,
    limit: int,
    after: int = -1,
    search: str | None = None,
    rank: int | None = None,
    node: str | None = None,
    source: str | None = None,
    rule: str | None = None,
) -> Rows:
    """Kept lines in the order in which they came."""
    k, s = t.kept_lines.c, t.sources.c
    query = (
        select(k.ord, s.name.label("source"), k.line, k.text, k.rule, k.cut, k.rank, k.node)
        .join(t.sources, and_(s.attempt_id == k.attempt_id, s.number == k.source))
        .where(k.attempt_id == attempt, k.ord > after)
        .order_by(k.ord)
        .limit(limit)
    )
    if search:
        # SQLite's LIKE ignores the case of ASCII and PostgreSQL's does not. So both must be told to.
        query = query.where(k.text.icontains(search, autoescape=True))
    if rank is not None:
        query = query.where(k.rank == rank)
    if node is not None:
        query = query.where(k.node == node)
    if source is not None:
        query = query.where(s.name == source)
    if rule is not None:
        query = query.where(k.rule == rule)
    return [_dict(row) for row in connection.execute(query)]


def sources(connection: Connection, attempt: int) -> Rows:
    """How far each source is stored."""
    s = t.sources.c
    rows = connection.execute(
        select(s.name, s.rank, s.node, s.received, s.last_seen, s.missing).where(s.attempt_id == attempt).order_by(s.number)
    )
    return [{**_dict(row), "missing": row.missing or []} for row in rows]


def series(connection: Connection, attempt: int) -> Rows:
    """The job's numbers, in buckets."""
    s = t.series.c
    rows = connection.execute(
        select(s.name, s.count, s.last, s.at_step, s.least, s.most, s.points).where(s.attempt_id == attempt).order_by(s.name)
    )
    return [{**_dict(row), "points": unpacked(row.points)} for row in rows]


# --- failure groups -----------------------------------------------------------------------------------------------------------


def groups(
    connection: Connection,
    *,
    limit: int,
    before: Place | None = None,
    equal: dict[str, str] | None = None,
    node: str | None = None,
    user: str | None = None,
    cluster: str | None = None,
    since: float | None = None,
    search: str | None = None,
    among: Sequence[Select[Any]] = (),
    clause: ColumnElement[bool] | None = None,
) -> Rows:
    """Failure groups, the latest first. ``search``: text in the title or the root-cause line. ``among``: their ids are in each
    of these. ``clause``: a further condition.
    """
    g = t.groups.c
    query = select(t.groups).where(g.count > 0).order_by(g.last_seen.desc(), g.id.desc()).limit(limit)
    if before is not None:
        query = query.where(tuple_(g.last_seen, g.id) < before)
    if since is not None:
        query = query.where(g.last_seen >= since)
    for column, value in (equal or {}).items():
        query = query.where(g[column] == value)
    if search:
        query = query.where(or_(g.title.icontains(search, autoescape=True), g.root_text.icontains(search, autoescape=True)))
    for some in among:
        query = query.where(g.id.in_(some))
    if clause is not None:
        query = query.where(clause)
    if node:
        query = query.where(g.id.in_(select(t.occurrence_nodes.c.group_id).where(t.occurrence_nodes.c.node == node)))
    if user:
        query = query.where(g.id.in_(select(t.occurrences.c.group_id).where(t.occurrences.c.user == user)))
    if cluster:
        query = query.where(g.id.in_(select(t.occurrences.c.group_id).where(t.occurrences.c.cluster == cluster)))
    return [_dict(row) for row in connection.execute(query)]


def group(connection: Connection, group_id: int) -> dict[str, Any] | None:
    """A group with the nodes, users and latest occurrences that it touched."""
    found = connection.execute(select(t.groups).where(t.groups.c.id == group_id)).first()
    if found is None:
        return None
    n, o = t.occurrence_nodes.c, t.occurrences.c
    nodes = connection.execute(
        select(n.node, func.count().label("count"), func.max(n.at).label("last_seen"))
        .where(n.group_id == group_id)
        .group_by(n.node)
        .order_by(func.count().desc(), n.node)
        .limit(100)
    )
    users = connection.execute(
        select(o.user, func.count().label("count"))
        .where(o.group_id == group_id, o.user.is_not(None))
        .group_by(o.user)
        .order_by(func.count().desc(), o.user)
        .limit(100)
    )
    return {
        **_dict(found),
        "nodes": [_dict(row) for row in nodes],
        "users": [_dict(row) for row in users],
        "occurrences": occurrences(connection, group_id, limit=50),
        "comments": comments(connection, group_id),
    }


def occurrences(
    connection: Connection, group_id: int, *, limit: int, before: float | None = None, since: float | None = None
) -> Rows:
    """The jobs that failed like this, the latest first."""
    o = t.occurrences.c
    query = (
        select(t.jobs.c.name.label("job"), t.attempts.c.number.label("attempt"), o.attempt_id, o.at, o.user, o.cluster,
               o.gpu_seconds, o.still, o.back, o.whole)
        .join(t.jobs, t.jobs.c.id == o.job_id)
        .join(t.attempts, t.attempts.c.id == o.attempt_id)
        .where(o.group_id == group_id)
        .order_by(o.at.desc())
        .limit(limit)
    )  # fmt: skip
    if before is not None:
        query = query.where(o.at < before)
    if since is not None:
        query = query.where(o.at >= since)
    return [_dict(row) for row in connection.execute(query)]


def change_group(connection: Connection, group_id: int, changes: dict[str, Any], who: str, now: float) -> bool:
    """Set state, note or assignee, with an entry in the audit trail that says who did it."""
    g = t.groups.c
    before = connection.execute(select(g.state, g.note, g.assignee).where(g.id == group_id)).first()
    if before is None:
        return False
    values = dict(changes)
    if "state" in values and values["state"] != before.state:
        values |= {"state_changed": now, "regressed": False}
    connection.execute(update(t.groups).where(g.id == group_id).values(**values))
    record(connection, who, "failure.changed", f"failure/{group_id}", {"was": _dict(before), "is": changes}, now)
    return True


def comment(connection: Connection, group_id: int, text: str, who: str, now: float) -> None:
    """Store what a person says of a group."""
    connection.execute(insert(t.comments).values(group_id=group_id, at=now, who=who, text=text))


def comments(connection: Connection, group_id: int, limit: int = 100) -> Rows:
    """What people said of a group, the latest first."""
    c = t.comments.c
    query = select(c.at, c.who, c.text).where(c.group_id == group_id).order_by(c.at.desc(), c.id.desc()).limit(limit)
    return [_dict(row) for row in connection.execute(query)]


def correct(connection: Connection, attempt: int, values: dict[str, Any], who: str, now: float) -> int:
    """Store a person's correction of a diagnosis. The diagnosis before it stays readable."""
    found = report(connection, attempt)
    diagnosis = found["report"]["diagnosis"] if found else {}
    root = diagnosis.get("root_cause") or {}
    was = {"category": diagnosis.get("category"), "reason": diagnosis.get("reason"), "line": root.get("line")}
    made = connection.execute(
        insert(t.corrections).values(attempt_id=attempt, at=now, who=who, was=was, **values).returning(t.corrections.c.id)
    ).scalar_one()
    record(connection, who, "diagnosis.corrected", f"attempt/{attempt}", {"was": was, "is": values}, now)
    return int(made)


def corrections(connection: Connection, *, limit: int, attempt: int | None = None) -> Rows:
    """Corrections by people, the latest first."""
    c = t.corrections.c
    query = (
        select(c.id, t.jobs.c.name.label("job"), t.attempts.c.number.label("attempt"), c.at, c.who, c.category, c.reason,
               c.source, c.line, c.note, c.was, t.tasks.c.result.label("lesson"))
        .join(t.attempts, t.attempts.c.id == c.attempt_id)
        .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .outerjoin(t.tasks, t.tasks.c.ref == literal("correction/").concat(cast(c.id, Text)))
        .order_by(c.at.desc())
        .limit(limit)
    )  # fmt: skip
    if attempt is not None:
        query = query.where(c.attempt_id == attempt)
    return [_dict(row) for row in connection.execute(query)]


_RECORD: Final = insert(t.audit)


def record(connection: Connection, who: str, what: str, subject: str, detail: dict[str, Any], now: float) -> None:
    """Write an entry into the audit trail."""
    connection.execute(_RECORD, {"at": now, "who": who, "what": what, "subject": subject, "detail": detail})


# --- nodes, actions -----------------------------------------------------------------------------------------------------------


def nodes(connection: Connection, *, limit: int, state: str | None = None, after: str = "") -> Rows:
    """Nodes by name."""
    n = t.nodes.c
    query = select(t.nodes).where(n.name > after).order_by(n.name).limit(limit)
    if state is not None:
        query = query.where(n.state == state)
    return [_dict(row) for row in connection.execute(query)]


def node(connection: Connection, name: str) -> dict[str, Any] | None:
    """A node with the failures that it is suspected of."""
    found = connection.execute(select(t.nodes).where(t.nodes.c.name == name)).first()
    if found is None:
        return None
    n, o = t.occurrence_nodes.c, t.occurrences.c
    rows = connection.execute(
        select(t.jobs.c.name.label("job"), t.attempts.c.number.label("attempt"), n.at, n.group_id, o.category, o.reason)
        .join(t.occurrences, o.attempt_id == n.attempt_id)
        .join(t.jobs, t.jobs.c.id == o.job_id)
        .join(t.attempts, t.attempts.c.id == n.attempt_id)
        .where(n.node == name)
        .order_by(n.at.desc())
        .limit(100)
    )
    return {**_dict(found), "history": [_dict(row) for row in rows]}


def actions(
    connection: Connection, *, limit: int, state: str | None = None, job: str | None = None, before: int | None = None
) -> Rows:
    """Actions, the latest first."""
    a = t.actions.c
    query = (
        select(t.actions, t.jobs.c.name.label("job"), t.attempts.c.number.label("attempt"))
        .outerjoin(t.attempts, t.attempts.c.id == a.attempt_id)
        .outerjoin(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .order_by(a.id.desc())
        .limit(limit)
    )
    conditions: list[ColumnElement[bool]] = []
    if state is not None:
        conditions.append(a.state == state)
    if job is not None:
        conditions.append(t.jobs.c.name == job)
    if before is not None:
        conditions.append(a.id < before)
    return [_dict(row) for row in connection.execute(query.where(*conditions))]


def overview(connection: Connection, since: float) -> dict[str, Any]:
    """Figures for a first look: what runs, what has failed since."""
    j, o = t.jobs.c, t.occurrences.c
    states = connection.execute(
        select(j.state, func.count().label("count")).where(or_(j.state == "running", j.last_seen >= since)).group_by(j.state)
    )
    failures = connection.execute(
        select(o.category, o.reason, func.count().label("count"), func.sum(o.gpu_seconds).label("gpu_seconds"))
        .where(o.at >= since)
        .group_by(o.category, o.reason)
        .order_by(func.count().desc())
    )
    return {"jobs": {row.state: row.count for row in states}, "failures": [_dict(row) for row in failures]}
