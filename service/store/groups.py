"""Failure groups: the same failure over jobs, nodes and days is one group with occurrences and counters.

Counters and occurrences change in the same transaction, so a group of 100,000 occurrences is read at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, delete, insert, select, update

from diagnose.decision.lost import Price
from diagnose.report import Diagnosis
from service.store import tables as t
from service.store.upsert import upsert

OPEN, RESOLVED, IGNORED = "open", "resolved", "ignored"
STATES = (OPEN, RESOLVED, IGNORED)

# Statements of every failure. They are made once: to make one takes longer than to run it.
_GROUP: Final = select(t.groups.c.id, t.groups.c.state, t.groups.c.state_changed).where(
    t.groups.c.project == bindparam("project"), t.groups.c.fingerprint == bindparam("fingerprint")
)
_BEFORE: Final = select(t.occurrences.c.group_id, t.occurrences.c.gpu_seconds, t.occurrences.c.at).where(
    t.occurrences.c.attempt_id == bindparam("attempt")
)
_COUNT: Final = (
    update(t.groups)
    .where(t.groups.c.id == bindparam("_group"))
    .values(
        count=t.groups.c.count + bindparam("_more"),
        last_seen=case((t.groups.c.last_seen < bindparam("_at"), bindparam("_at")), else_=t.groups.c.last_seen),
        gpu_seconds_lost=t.groups.c.gpu_seconds_lost + bindparam("_cost"),
    )
)
_REOPEN: Final = (
    update(t.groups)
    .where(t.groups.c.id == bindparam("_group"))
    .values(state=OPEN, regressed=True, state_changed=bindparam("_at"))
)
_BLAMED: Final = select(t.occurrence_nodes.c.node).where(t.occurrence_nodes.c.attempt_id == bindparam("attempt"))
_CULPRITS: Final = (
    update(t.occurrence_nodes)
    .where(t.occurrence_nodes.c.attempt_id == bindparam("_attempt"))
    .values(culprit=t.occurrence_nodes.c.node.in_(bindparam("_culprits", expanding=True)))
)


def occur(
    connection: Connection,
    *,
    attempt_id: int,
    job_id: int,
    project: str,
    user: str | None,
    cluster: str | None,
    diagnosis: Diagnosis,
    nodes: Sequence[str],
    at: float,
    failed_at: float,
    price: Price,
) -> tuple[int, bool]:
    """Enter an attempt's failure into its group. Returns (the group, whether it had been resolved and is back).

    ``failed_at`` counts where the attempt was in no group before. ``at`` is now.
    """
    assert diagnosis.group is not None
    g = t.groups.c
    group = connection.execute(_GROUP, {"project": project, "fingerprint": diagnosis.group}).first()
    before = connection.execute(_BEFORE, {"attempt": attempt_id}).first()
    if before is not None:
        failed_at = before.at  # an answer that comes later is no later failure
    if before is not None and (group is None or before.group_id != group.id):
        forget_occurrence(connection, attempt_id, at)
        before = None
    regressed = False
    if group is None:
        group_id = connection.execute(
            insert(t.groups)
            .values(
                project=project,
                fingerprint=diagnosis.group,
                category=diagnosis.category,
                reason=diagnosis.reason,
                title=(diagnosis.root_cause.title if diagnosis.root_cause else None) or diagnosis.summary,
                rule=diagnosis.rule,
                root_text=diagnosis.root_cause.text if diagnosis.root_cause else None,
                mitigation=diagnosis.mitigation,
                first_seen=failed_at,
                last_seen=failed_at,
                count=0,
                gpu_seconds_lost=0.0,
                state=OPEN,
                regressed=False,
            )
            .returning(g.id)
        ).scalar_one()
    else:
        group_id = group.id
        regressed = before is None and _is_back(group, failed_at)
    occurrence = {
        "attempt_id": attempt_id,
        "group_id": group_id,
        "job_id": job_id,
        "at": failed_at,
        "category": diagnosis.category,
        "reason": diagnosis.reason,
        "user": user,
        "cluster": cluster,
        **asdict(price),
    }
    upsert(connection, t.occurrences, [occurrence])
    cost = price.gpu_seconds - (before.gpu_seconds if before is not None else 0.0)
    connection.execute(_COUNT, {"_group": group_id, "_more": int(before is None), "_at": failed_at, "_cost": cost})
    if regressed:
        connection.execute(_REOPEN, {"_group": group_id, "_at": at})
    _blame(connection, attempt_id, group_id, nodes, at, failed_at, set(diagnosis.culprits))
    return int(group_id), regressed


def _is_back(group: Row[*tuple[Any, ...]], failed_at: float) -> bool:
    """Whether this fails after it was resolved. An older failure may come into the group later, by a correction."""
    return bool(group.state == RESOLVED and (group.state_changed is None or failed_at > group.state_changed))


def forget_occurrence(connection: Connection, attempt_id: int, at: float) -> None:
    """Take an attempt out of its group: it did not fail, or failed for another reason."""
    o, g = t.occurrences.c, t.groups.c
    before = connection.execute(select(o.group_id, o.gpu_seconds).where(o.attempt_id == attempt_id)).first()
    if before is None:
        return
    connection.execute(delete(t.occurrences).where(o.attempt_id == attempt_id))
    connection.execute(
        update(t.groups)
        .where(g.id == before.group_id)
        .values(count=g.count - 1, gpu_seconds_lost=g.gpu_seconds_lost - before.gpu_seconds)
    )
    _blame(connection, attempt_id, before.group_id, (), at, at)


def _blame(
    connection: Connection,
    attempt_id: int,
    group_id: int,
    nodes: Sequence[str],
    at: float,
    failed_at: float,
    culprits: Collection[str] = (),
) -> None:
    """Store which nodes are under suspicion for this attempt. They replace those before."""
    n, c = t.nodes.c, t.occurrence_nodes.c
    before = set(connection.execute(_BLAMED, {"attempt": attempt_id}).scalars())
    if before:
        connection.execute(_CULPRITS, {"_attempt": attempt_id, "_culprits": sorted(set(culprits) & set(nodes))})
    gone, come = before - set(nodes), [node for node in dict.fromkeys(nodes) if node not in before]
    for node in sorted(gone):
        connection.execute(delete(t.occurrence_nodes).where(c.attempt_id == attempt_id, c.node == node))
        connection.execute(update(t.nodes).where(n.name == node).values(failures=n.failures - 1))
        connection.execute(
            update(t.nodes).where(n.name == node, n.failures <= 0, n.state == "suspect").values(state="ok", changed=at)
        )
    if not come:
        return
    _suspect(connection, come, at, failed_at)
    connection.execute(
        insert(t.occurrence_nodes),
        [
            {"attempt_id": attempt_id, "node": node, "group_id": group_id, "at": failed_at, "culprit": node in culprits}
            for node in come
        ],
    )


def _suspect(connection: Connection, names: Sequence[str], at: float, failed_at: float) -> None:
    """Count a failure for these nodes. They are under suspicion, unless they have passed a node check since it happened."""
    n, k = t.nodes.c, t.node_checks.c
    upsert(
        connection,
        t.nodes,
        [{"name": name, "state": "ok", "first_seen": failed_at, "last_seen": failed_at, "failures": 0} for name in names],
        changes=("name",),  # what is known of a node is perhaps later than this failure
    )
    seen = {"last_seen": _later(n.last_seen, failed_at), "last_failure": _later(n.last_failure, failed_at)}
    connection.execute(update(t.nodes).where(n.name.in_(names)).values(failures=n.failures + 1, **seen))
    passed = select(k.node).where(k.node == n.name, k.result == "good", k.at > failed_at).exists()
    connection.execute(update(t.nodes).where(n.name.in_(names), n.state == "ok", ~passed).values(state="suspect", changed=at))


def _later(column: ColumnElement[Any], at: float) -> ColumnElement[Any]:
    return case((column > at, column), else_=at)


def roots(connection: Connection, limit: int) -> list[str]:
    """The root-cause lines of failures, the latest first. Lines that only a detector points at are regular, and left out."""
    g, d = t.groups.c, t.diagnoses.c
    by_detector = select(d.group_id).where(d.group_id == g.id, d.by == "detector").exists()
    query = select(g.root_text).where(g.root_text.is_not(None), ~by_detector).order_by(g.last_seen.desc()).limit(limit)
    return list(connection.execute(query).scalars())
