"""What fails, where, and at what price, over a stretch of time: the totals of the overview page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    and_,
    case,
    cast,
    distinct,
    exists,
    func,
    or_,
    select,
)

from service.store import nodechecks
from service.store.actions import aftermath, still_out
from service.store.diagnoses import unpacked
from service.store.tables import (
    actions,
    attempts,
    audit,
    corrections,
    diagnoses,
    groups,
    jobs,
    kept_lines,
    node_checks,
    nodes,
    occurrence_nodes,
    occurrences,
    series,
    sources,
)

_MOST_OPTIONS = 100
ACTS = ("restart", "isolate_and_restart", "rollback_and_skip", "retry_later", "isolate", "release")
"""actions that something carries out; the others say what a person should do"""
_WAITS = (
    actions.c.state == "proposed",
    actions.c.kind.in_(ACTS),
    func.coalesce(actions.c.mode, "approve") != "observe",  # nobody can approve what a policy only observes
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


def over_time(connection: Connection, asked: Asked, buckets: int) -> list[dict[str, int]]:
    """Failures by category in ``buckets`` equal parts of the time."""
    width = (asked.until - asked.since) / buckets
    number = _whole(connection, (occurrences.c.at - asked.since) / width).label("number")
    query = (
        select(number, occurrences.c.category, func.count()).where(*asked.clauses()).group_by(number, occurrences.c.category)
    )
    found: list[dict[str, int]] = [{} for _ in range(buckets)]
    for index, category, count in connection.execute(query):
        part = found[min(max(0, index), buckets - 1)]
        part[category] = part.get(category, 0) + count
    return found


def _whole(connection: Connection, value: ColumnElement[Any]) -> ColumnElement[int]:
    """``value`` rounded down. A cast rounds to the nearest in PostgreSQL and down in SQLite."""
    return cast(func.floor(value) if connection.dialect.name == "postgresql" else value, Integer)


def by_group(connection: Connection, asked: Asked, ids: Sequence[int], buckets: int) -> dict[int, list[int]]:
    """The course of each of these groups."""
    width = (asked.until - asked.since) / buckets
    number = _whole(connection, (occurrences.c.at - asked.since) / width).label("number")
    query = (
        select(occurrences.c.group_id, number, func.count())
        .where(*asked.clauses(), occurrences.c.group_id.in_(ids))
        .group_by(occurrences.c.group_id, number)
    )
    found = {group: [0] * buckets for group in ids}
    for group, index, count in connection.execute(query):
        found[group][min(max(0, index), buckets - 1)] += count
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """What one reason cost."""

    category: str
    reason: str
    count: int
    gpu_seconds: float


def by_reason(connection: Connection, asked: Asked) -> list[Cost]:
    """Reasons, the most expensive first. If no job says how many GPUs it has, the most frequent first."""
    lost = func.coalesce(func.sum(occurrences.c.gpu_seconds), 0.0)
    query: Select[Any] = (
        select(occurrences.c.category, occurrences.c.reason, func.count(), lost)
        .where(*asked.clauses())
        .group_by(occurrences.c.category, occurrences.c.reason)
        .order_by(lost.desc(), func.count().desc(), occurrences.c.reason)
    )
    return [Cost(*row) for row in connection.execute(query)]


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers at the top of the page."""

    failures: int
    before: int
    """in the stretch of the same length before"""
    gpu_seconds: float
    whole: float
    """the part of it of attempts without a known checkpoint"""
    open: int
    running: int
    silent: int
    waiting: int
    bytes_in: int
    bytes_kept: int


def figures(connection: Connection, asked: Asked, silent_before: float) -> Figures:
    """``silent_before``: a running job is silent if its last line is older."""
    lost_each = occurrences.c.gpu_seconds
    count, lost, whole = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(lost_each), 0.0),
            func.coalesce(func.sum(case((occurrences.c.whole, lost_each), else_=0.0)), 0.0),
        ).where(*asked.clauses())
    ).one()
    length = asked.until - asked.since
    earlier = Asked(asked.since - length, asked.since, asked.cluster, asked.user, asked.category, asked.reason, asked.node)
    before = connection.execute(select(func.count()).select_from(occurrences).where(*earlier.clauses())).scalar_one()
    running = select(func.count()).select_from(jobs).where(jobs.c.state == "running", *_of_jobs(asked))
    kept = select(func.coalesce(func.sum(attempts.c.bytes_in), 0), func.coalesce(func.sum(attempts.c.bytes_kept), 0)).where(
        attempts.c.last_seen >= asked.since
    )
    if asked.cluster or asked.user or asked.node:
        kept = kept.join(jobs, jobs.c.id == attempts.c.job_id).where(*_of_jobs(asked))
    open_ = select(func.count()).select_from(groups).where(groups.c.state == "open", groups.c.count > 0, *_of_groups(asked))
    bytes_in, bytes_kept = connection.execute(kept).one()
    return Figures(
        failures=count,
        before=before,
        gpu_seconds=lost,
        whole=whole,
        open=connection.execute(open_).scalar_one(),
        running=connection.execute(running).scalar_one(),
        silent=connection.execute(running.where(jobs.c.last_seen < silent_before)).scalar_one(),
        waiting=waiting(connection, asked),
        bytes_in=int(bytes_in),
        bytes_kept=int(bytes_kept),
    )


def _of_jobs(asked: Asked) -> list[ColumnElement[bool]]:
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


def _of_groups(asked: Asked) -> list[ColumnElement[bool]]:
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


def incidents(connection: Connection, asked: Asked, most: int) -> list[dict[str, Any]]:
    """Open groups, the latest first."""
    g = groups.c
    query = select(groups).where(g.state == "open", g.count > 0, *_of_groups(asked)).order_by(g.last_seen.desc(), g.id.desc())
    return [dict(row._mapping) for row in connection.execute(query.limit(most))]


def waiting(connection: Connection, asked: Asked | None = None) -> int:
    """Number of actions that wait for a person's approval."""
    query = select(func.count()).select_from(actions).where(*_WAITS)
    return int(connection.execute(_of_actions(query, asked) if asked is not None else query).scalar_one())


def to_approve(connection: Connection, asked: Asked, most: int) -> list[dict[str, Any]]:
    """The actions that wait for a person's approval, the oldest first."""
    query = _actions().where(*_WAITS).order_by(actions.c.created, actions.c.id).limit(most)
    return [dict(row._mapping) for row in connection.execute(_of_actions(query, asked))]


def _of_actions(query: Select[Any], asked: Asked) -> Select[Any]:
    a, o = actions.c, occurrences.c
    for column, wanted in (
        (o.cluster, asked.cluster),
        (o.user, asked.user),
        (o.category, asked.category),
        (o.reason, asked.reason),
    ):
        if wanted is not None:
            query = query.where(a.attempt_id.in_(select(o.attempt_id).where(column == wanted)))
    if asked.node is not None:
        blamed = select(occurrence_nodes.c.attempt_id).where(occurrence_nodes.c.node == asked.node)
        alone = cast(a.nodes, Text).contains(json.dumps(asked.node), autoescape=True)
        query = query.where(or_(a.attempt_id.in_(blamed), alone))
    return query


def options(connection: Connection, since: float) -> dict[str, list[str]]:
    """The values that filters can have."""
    clusters = select(jobs.c.cluster).distinct().where(jobs.c.cluster.is_not(None)).order_by(jobs.c.cluster)
    reasons = select(occurrences.c.reason).distinct().where(occurrences.c.at >= since).order_by(occurrences.c.reason)
    return {
        "clusters": list(connection.execute(clusters.limit(_MOST_OPTIONS)).scalars()),
        "reasons": list(connection.execute(reasons.limit(_MOST_OPTIONS)).scalars()),
    }


# --- what single pages need besides lists -------------------------------------------------------------------------------------


def losses(connection: Connection, attempt_ids: Sequence[int]) -> dict[int, list[float | None]]:
    """The course of the loss of each of these attempts."""
    s = series.c
    rows = connection.execute(select(s.attempt_id, s.points).where(s.attempt_id.in_(attempt_ids), s.name == "loss"))
    return {attempt: [point[1] for point in unpacked(points)] for attempt, points in rows}


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


def suspects_of(connection: Connection, attempt_ids: Sequence[int]) -> dict[int, list[str]]:
    """The nodes under suspicion for each of these attempts."""
    n = occurrence_nodes.c
    found: dict[int, list[str]] = {}
    for attempt, node in connection.execute(
        select(n.attempt_id, n.node).where(n.attempt_id.in_(attempt_ids)).order_by(n.attempt_id, n.node)
    ):
        found.setdefault(attempt, []).append(node)
    return found


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


def _lines(attempt_id: int) -> Select[Any]:
    k = kept_lines.c
    return (
        select(k.ord, sources.c.name.label("source"), k.line, k.text, k.rule, k.cut, k.rank, k.node)
        .join(sources, and_(sources.c.attempt_id == k.attempt_id, sources.c.number == k.source))
        .where(k.attempt_id == attempt_id)
    )


def around(connection: Connection, attempt_id: int, source: str, line: int, most: int) -> list[dict[str, Any]]:
    """The kept lines around a line, in the order in which they came."""
    k = kept_lines.c
    here = connection.execute(_lines(attempt_id).where(sources.c.name == source, k.line == line).limit(1)).first()
    if here is None:
        return []
    rows = connection.execute(
        _lines(attempt_id).where(sources.c.name == source, k.ord > here.ord - most, k.ord < here.ord + most).order_by(k.ord)
    )
    return [dict(row._mapping) for row in rows]


def last_lines(connection: Connection, attempt_id: int, most: int) -> list[dict[str, Any]]:
    """The last kept lines, oldest first."""
    rows = connection.execute(_lines(attempt_id).order_by(kept_lines.c.ord.desc()).limit(most)).all()
    return [dict(row._mapping) for row in reversed(rows)]


def kept(
    connection: Connection,
    attempt_id: int,
    *,
    limit: int,
    after: int,
    search: str | None = None,
    rank: int | None = None,
    node: str | None = None,
    failures: bool = False,
) -> list[dict[str, Any]]:
    """The kept lines that meet a condition."""
    k = kept_lines.c
    query = _lines(attempt_id).where(k.ord > after).order_by(k.ord).limit(limit)
    if search:
        query = query.where(k.text.icontains(search, autoescape=True))
    if rank is not None:
        query = query.where(k.rank == rank)
    if node is not None:
        query = query.where(k.node == node)
    if failures:
        query = query.where(k.rule.is_not(None), k.rule != "notable")
    return [dict(row._mapping) for row in connection.execute(query)]


def explained(connection: Connection) -> dict[str, tuple[int, int]]:
    """Rule -> (how many failures it explained, how many of those a person corrected to something else)."""
    d, c = diagnoses.c, corrections.c
    counts = connection.execute(select(d.rule, func.count()).where(d.rule.is_not(None)).group_by(d.rule))
    wrong = connection.execute(
        select(d.rule, func.count(distinct(c.attempt_id)))
        .join(corrections, c.attempt_id == d.attempt_id)
        .where(d.rule.is_not(None), c.reason != d.reason)
        .group_by(d.rule)
    )
    corrected = {rule: count for rule, count in wrong}  # noqa: C416 - dict() of rows is not typed
    return {rule.rpartition(":")[2]: (count, corrected.get(rule, 0)) for rule, count in counts}


LATEST = 200
"""so many attempts show how much filters drop"""


def dropped(connection: Connection) -> dict[str, int]:
    """Filter -> lines that it dropped in the latest attempts."""
    a = attempts.c
    total: Counter[str] = Counter()
    for hits in connection.scalars(select(a.hits).order_by(a.id.desc()).limit(LATEST)):
        total.update(hits or {})
    return dict(total)


def group_of(connection: Connection, attempt_id: int) -> dict[str, Any] | None:
    """The failure group that an attempt belongs to."""
    found = connection.execute(
        select(groups.c.id, groups.c.title, groups.c.count, groups.c.state)
        .join(occurrences, occurrences.c.group_id == groups.c.id)
        .where(occurrences.c.attempt_id == attempt_id)
    ).first()
    return dict(found._mapping) if found is not None else None


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


def titles(connection: Connection, group_ids: Sequence[int]) -> dict[int, str]:
    """The titles of these groups."""
    rows = connection.execute(select(groups.c.id, groups.c.title).where(groups.c.id.in_(group_ids)))
    return {row.id: row.title for row in rows}


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
    return [dict(row._mapping) for row in connection.execute(query)]


def _actions() -> Select[Any]:
    return (
        select(actions, jobs.c.name.label("job"), attempts.c.number.label("attempt"), groups.c.title, groups.c.root_text)
        .outerjoin(attempts, attempts.c.id == actions.c.attempt_id)
        .outerjoin(jobs, jobs.c.id == attempts.c.job_id)
        .outerjoin(groups, groups.c.id == actions.c.group_id)
    )


# --- the shift, and where it breaks down


def done(connection: Connection, since: float, most: int) -> list[dict[str, Any]]:
    """Actions that somebody or the policy decided, the latest first, each with what came of it."""
    decided = and_(actions.c.changed >= since, actions.c.kind.in_(ACTS), actions.c.state.not_in(("proposed", "expired")))
    rows = connection.execute(_actions().where(decided).order_by(actions.c.changed.desc(), actions.c.id.desc()).limit(most))
    return [{**row._mapping, "aftermath": aftermath(connection, row.id)} for row in rows]


def new_failures(connection: Connection, since: float, most: int) -> list[dict[str, Any]]:
    """Failure groups that were never seen before this time, or are back after they were resolved; the most expensive first."""
    g = groups.c
    fresh = or_(g.first_seen >= since, and_(g.regressed, g.last_seen >= since))
    query = select(groups).where(g.count > 0, fresh).order_by(g.gpu_seconds_lost.desc(), g.id.desc()).limit(most)
    return [dict(row._mapping) for row in connection.execute(query)]


BY = ("user", "team", "project", "cluster", "framework", "image", "reason")


def broken_down(connection: Connection, since: float, until: float, by: str, most: int) -> list[dict[str, Any]]:
    """Failures and what they cost, now and in the time of the same length before, the most expensive first."""
    o, j = occurrences.c, jobs.c
    columns: dict[str, ColumnElement[Any]] = {
        "user": o.user, "project": j.project, "cluster": o.cluster, "framework": j.framework, "reason": o.reason,
        "team": j.labels["team"].as_string(), "image": j.labels["image"].as_string(),
    }  # fmt: skip
    name, now = columns[by].label("name"), o.at >= since
    query = (
        select(
            name,
            func.sum(case((now, 1), else_=0)).label("count"),
            func.sum(case((now, 0), else_=1)).label("before"),
            func.sum(case((now, o.gpu_seconds), else_=0.0)).label("lost"),
            func.sum(case((now, 0.0), else_=o.gpu_seconds)).label("lost_before"),
            func.count(distinct(case((now, o.job_id)))).label("jobs"),
        )
        .where(o.at >= since - (until - since), o.at < until)
        .group_by(name)
    )
    if by in ("project", "framework", "team", "image"):
        query = query.join(jobs, j.id == o.job_id)
    rows = [dict(row._mapping) for row in connection.execute(query)]
    return sorted(rows, key=lambda row: (-row["lost"], -row["count"], -row["lost_before"], str(row["name"])))[:most]
