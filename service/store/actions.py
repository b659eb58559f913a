"""Actions, and the decisions that led to them, as rows. ``diagnose.decision.action`` says what may happen to an action."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, func, insert, or_, select, update

from diagnose.decision.action import UNDONE, Record
from diagnose.decision.result import RESTARTS, Decision
from service.projects import parted
from service.store import confirmations
from service.store import tables as t
from service.store.reading import record as entered
from service.store.upsert import upsert

_A_ROUND = 200
_ABOUT: Final = (
    select(t.diagnoses.c.made_at, t.jobs.c.name, t.attempts.c.number)
    .join(t.attempts, t.attempts.c.id == t.diagnoses.c.attempt_id)
    .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
    .where(t.diagnoses.c.attempt_id == bindparam("attempt"))
)
_RECORDS: Final = (
    select(t.actions, t.jobs.c.name.label("job"), t.attempts.c.number.label("attempt"))
    .outerjoin(t.attempts, t.attempts.c.id == t.actions.c.attempt_id)
    .outerjoin(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
)
_OF_ATTEMPT: Final = _RECORDS.where(t.actions.c.attempt_id == bindparam("attempt")).order_by(t.actions.c.id)
_GROUP: Final = select(t.occurrences.c.group_id).where(t.occurrences.c.attempt_id == bindparam("attempt"))
_ENTER: Final = insert(t.actions).returning(t.actions.c.id)


def undecided(connection: Connection, leaving: Collection[int] = ()) -> list[int]:
    """Attempts whose diagnosis is newer than their decision, what failed before the rest, oldest first. Those in
    ``leaving`` are left out.

    One that was decided about while it ran is decided again whatever is said of it now: it may have gone on.
    """
    d, x = t.diagnoses.c, t.decisions.c
    waits = or_(d.final, d.reason.in_(("hang", "loss_anomaly")), x.attempt_id.is_not(None))
    return list(
        connection.execute(
            select(d.attempt_id)
            .outerjoin(t.decisions, x.attempt_id == d.attempt_id)
            .where(waits, or_(x.attempt_id.is_(None), x.about < d.made_at), d.attempt_id.not_in(leaving))
            .order_by(d.outcome != "failed", d.made_at)  # what failed waits for a restart
            .limit(_A_ROUND)
        ).scalars()
    )


def about(connection: Connection, attempt_id: int) -> tuple[float, str, int] | None:
    """(when the diagnosis was made, job, attempt)."""
    row = connection.execute(_ABOUT, {"attempt": attempt_id}).first()
    return (row.made_at, row.name, row.number) if row is not None else None


def keep_decision(connection: Connection, attempt_id: int, decision: Decision, made_about: float) -> None:
    """Store the latest decision about an attempt. The audit trail has all of them."""
    row = {"attempt_id": attempt_id, "about": made_about, "made_at": decision.made_at, "decision": decision.as_dict()}
    upsert(connection, t.decisions, [row])


def decision_of(connection: Connection, attempt_id: int) -> dict[str, Any] | None:
    """The latest decision about an attempt."""
    found: dict[str, Any] | None = connection.execute(
        select(t.decisions.c.decision).where(t.decisions.c.attempt_id == attempt_id)
    ).scalar()
    return found


def of_attempt(connection: Connection, attempt_id: int) -> list[Record]:
    """All actions of an attempt, oldest first."""
    return [_record(row) for row in connection.execute(_OF_ATTEMPT, {"attempt": attempt_id})]


def find(connection: Connection, action_id: int, *, locked: bool = False) -> Record | None:
    """An action. With ``locked``, nobody else can change it before this transaction ends."""
    if locked and connection.dialect.name == "postgresql":
        connection.execute(select(t.actions.c.id).where(t.actions.c.id == action_id).with_for_update())
    row = connection.execute(_RECORDS.where(t.actions.c.id == action_id)).first()
    return _record(row) if row is not None else None


def ids_of(connection: Connection, keys: Sequence[str]) -> dict[str, int]:
    """The id of each action, by its key."""
    x = t.actions.c
    return {row.key: row.id for row in connection.execute(select(x.key, x.id).where(x.key.in_(keys)))} if keys else {}


def order(connection: Connection, action_id: int, *, claims: bool = False) -> dict[str, Any]:
    """An action as its executor gets it. ``claims``: with the facts that the scheduler must confirm."""
    return _order(connection, connection.execute(_orders().where(t.actions.c.id == action_id)).one(), claims)


def orders(connection: Connection, now: float, *, claims: bool = False) -> list[dict[str, Any]]:
    """The orders that executors may take. ``claims``: as in ``order``."""
    x = t.actions.c
    query = _orders().where(x.state == "approved", x.not_before <= now)
    rows = connection.execute(query.order_by(x.created, x.id).limit(_A_ROUND)).all()
    return [_order(connection, row, claims) for row in rows]


def in_hand(connection: Connection, whose: str) -> list[tuple[int, str, bool]]:
    """(id, who has it, whether it was begun) of unfinished actions whose executor's name begins with ``whose``."""
    x = t.actions.c
    query = select(x.id, x.claimed_by, x.state).where(
        x.state.in_(("dispatched", "running")), x.claimed_by.startswith(whose, autoescape=True)
    )
    return [(row.id, row.claimed_by, row.state == "running") for row in connection.execute(query.order_by(x.id))]


def _orders() -> Any:
    return _RECORDS.add_columns(t.jobs.c.labels, t.attempts.c.last_seen)


def _order(connection: Connection, row: Row[Any], claims: bool) -> dict[str, Any]:
    decided = (row.basis or {}).get("decision") or {}
    # A person who approved it although it was not confirmed has the last word. A policy never has.
    word = row.decided_by if row.unconfirmed is not None and row.decided_by != "policy" else None
    return {
        "id": row.id,
        "key": row.key,
        "kind": row.kind,
        "job": parted(row.job)[1] if row.job is not None else None,
        "attempt": row.attempt,
        "labels": row.labels or {},
        "nodes": row.nodes,
        "avoid": row.avoid or [],
        "check": decided.get("check_first", []),
        "restart_from": row.restart_from,
        "skip_batches": row.skip_batches,
        "why": row.why,
        # If a job is submitted again under its name, more nodes may be added later. They are not part of this decision.
        # Of an order about nodes alone: a node that was rebooted since need not be rebooted again.
        "last_seen": min(row.last_seen, row.created) if row.last_seen is not None else row.created if row.job is None else None,
        "subject": row.subject,
        "claim": confirmations.claim_of(connection, row.attempt_id, word) if claims and row.attempt_id is not None else None,
    }


def group_id(connection: Connection, attempt_id: int) -> int | None:
    """The failure group of an attempt."""
    found: int | None = connection.execute(_GROUP, {"attempt": attempt_id}).scalar()
    return found


def reason_of(connection: Connection, action_id: int) -> str | None:
    """The reason of the diagnosis that an action answers."""
    x = t.actions.c
    found: str | None = connection.execute(select(x.reason).where(x.id == action_id)).scalar()
    return found


def node_is_busy(connection: Connection, kind: str, node: str) -> bool:
    """Whether an action of this kind is under way for a node."""
    x = t.actions.c
    rows = connection.execute(
        select(x.nodes).where(x.kind == kind, x.state.in_(("proposed", "approved", "dispatched", "running")))
    )
    return any(node in nodes for nodes in rows.scalars())


def proposed(connection: Connection, kind: str, node: str) -> int | None:
    """The action of this kind about this node alone that waits for a yes. What a policy only observes waits for nobody."""
    x = t.actions.c
    observed = func.coalesce(x.mode, "approve") == "observe"
    rows = connection.execute(select(x.id, x.nodes).where(x.kind == kind, x.state == "proposed", ~observed).order_by(x.id))
    return next((row.id for row in rows if row.nodes == [node]), None)


def not_taken(connection: Connection, kind: str, node: str) -> list[int]:
    """The actions of this kind about this node alone that no executor has taken yet."""
    x = t.actions.c
    rows = connection.execute(select(x.id, x.nodes).where(x.kind == kind, x.state.in_(UNDONE)).order_by(x.id))
    return [row.id for row in rows if row.nodes == [node]]


def open_ones(connection: Connection) -> list[tuple[int, Record]]:
    """Actions that may still change."""
    x = t.actions.c
    wanted = _RECORDS.where(x.state.in_(("proposed", "approved", "dispatched", "running"))).order_by(x.id).limit(_A_ROUND * 10)
    return [(row.id, _record(row)) for row in connection.execute(wanted)]


def approved(connection: Connection, now: float) -> list[int]:
    """Actions that an executor may take."""
    x = t.actions.c
    rows = connection.execute(
        select(x.id).where(x.state == "approved", x.not_before <= now).order_by(x.created, x.id).limit(_A_ROUND)
    )
    return list(rows.scalars())


def enter(connection: Connection, record: Record, attempt_id: int | None, group_id: int | None, **more: Any) -> int:
    """Enter a new action, and return its id."""
    values = {**_values(record), "key": record.key, "attempt_id": attempt_id, "group_id": group_id, **more}
    return int(connection.execute(_ENTER, values).scalar_one())


def rollback_of(connection: Connection, ids: Sequence[int]) -> tuple[dict[str, Any] | None, list[int] | None]:
    """From where, and without which batches, the last of these actions would have gone on: what takes its place keeps to it."""
    x = t.actions.c
    query = select(x.restart_from, x.skip_batches).where(x.id.in_(ids)).order_by(x.id.desc())
    for row in connection.execute(query):
        if row.restart_from is not None or row.skip_batches is not None:
            return row.restart_from, row.skip_batches
    return None, None


def aftermath(connection: Connection, action_id: int) -> dict[str, Any] | None:
    """What became of the job after the action: its next attempt. None: there is none, or the action is no restart."""
    return aftermaths(connection, [action_id]).get(action_id)


def aftermaths(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The same for several: those that are no restart, or after which no attempt came yet, are left out."""
    a, o, x = t.attempts.c, t.occurrences.c, t.actions.c
    columns = (
        a.id,
        a.job_id,
        a.number,
        a.state,
        a.outcome,
        a.started_at,
        a.ended_at,
        a.last_seen,
        a.step,
        o.group_id,
        o.reason,
    )
    attempts = select(*columns).outerjoin(t.occurrences, o.attempt_id == a.id)
    mine = attempts.add_columns(x.id.label("action")).join(t.actions, x.attempt_id == a.id)
    before = connection.execute(mine.where(x.id.in_(ids), x.kind.in_(RESTARTS))).all()
    first, more = t.attempts.alias(), t.attempts.alias()
    next_one = (
        select(func.min(more.c.number))
        .where(more.c.job_id == first.c.job_id, more.c.number > first.c.number)
        .correlate(first)
        .scalar_subquery()
    )
    later = attempts.add_columns(first.c.id.label("of")).join(first, and_(first.c.job_id == a.job_id, a.number == next_one))
    known = {row.of: row for row in connection.execute(later.where(first.c.id.in_({row.id for row in before})))}
    return {row.action: _came_of(row, known[row.id]) for row in before if row.id in known}


def _came_of(before: Row[Any], after: Row[Any]) -> dict[str, Any]:
    known = before.step is not None and after.step is not None
    failed = after.state == "ended" and after.outcome == "failed"
    alike = failed and after.group_id is not None and after.group_id == before.group_id
    if after.state != "ended":
        state = "running"
    else:
        state = "failed_alike" if alike else "failed_otherwise" if failed else str(after.outcome)
    return {
        "attempt": after.number,
        "state": state,
        "reason": after.reason if failed else None,
        "failed_at_step": before.step,
        "reached_step": after.step,
        "passed": after.step > before.step if known else None,
        "away_s": max(0.0, after.started_at - (before.ended_at or before.last_seen)),
    }


def put_in_place_of(connection: Connection, ids: Sequence[int], by: int) -> None:
    """Note which action has taken the place of these."""
    if not ids:
        return
    connection.execute(update(t.actions).where(t.actions.c.id.in_(ids)).values(replaced_by=by))


def save(connection: Connection, action_id: int, before: Record, after: Record, who: str, now: float) -> None:
    """Store what has changed of an action, with an entry in the audit trail."""
    if after == before:
        return
    connection.execute(update(t.actions).where(t.actions.c.id == action_id).values(**_values(after)))
    if after.state != before.state:
        detail = {"from": before.state, "to": after.state, "fence": after.fence, "result": after.result}
        entered(connection, who, f"action.{after.state}", f"action/{action_id}", detail, now)


def set_node(connection: Connection, node: str, state: str, who: str, why: str, key: str | None, now: float) -> None:
    """Store that a node was taken out of service or given back, with an entry in the audit trail."""
    x = t.isolations.c
    upsert(
        connection,
        t.nodes,
        [{"name": node, "state": state, "first_seen": now, "last_seen": now, "failures": 0, "why": why, "changed": now}],
        changes=("state", "why", "changed"),
    )
    if state == "isolated":
        connection.execute(insert(t.isolations).values(node=node, at=now, by=who, key=key))
    else:
        connection.execute(update(t.isolations).where(x.node == node, x.released.is_(None)).values(released=now))
    entered(connection, who, f"node.{state}", f"node/{node}", {"why": why, "action": key}, now)


def was_isolated(connection: Connection, node: str, key: str) -> bool:
    """Whether this action has taken the node out of service."""
    x = t.isolations.c
    return connection.execute(select(x.id).where(x.node == node, x.key == key).limit(1)).first() is not None


def still_out(connection: Connection, key: str) -> list[str]:
    """Nodes that this action has taken out of service, and that nobody has given back."""
    x = t.isolations.c
    rows = connection.execute(select(x.node).where(x.key == key, x.released.is_(None)).distinct().order_by(x.node))
    return list(rows.scalars())


def _record(row: Row[Any]) -> Record:
    return Record(
        key=row.key,
        job=row.job or "",
        attempt=row.attempt or 0,
        kind=row.kind,
        mode=row.mode or "observe",
        state=row.state,
        created=row.created,
        changed=row.changed,
        expires=row.expires if row.expires is not None else float("inf"),
        not_before=row.not_before,
        decided_by=row.decided_by,
        claimed_by=row.claimed_by,
        fence=row.fence,
        lease_until=row.lease_until,
        claims=row.claims,
        result=(row.result or {}).get("said"),
        late=row.late,
        notes=tuple(row.notes or ()),
    )


def _values(record: Record) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "mode": record.mode,
        "state": record.state,
        "created": record.created,
        "changed": record.changed,
        "expires": record.expires if record.expires != float("inf") else None,
        "not_before": record.not_before,
        "decided_by": record.decided_by,
        "claimed_by": record.claimed_by,
        "fence": record.fence,
        "lease_until": record.lease_until,
        "claims": record.claims,
        "result": {"said": record.result} if record.result is not None else None,
        "late": record.late,
        "notes": list(record.notes),
    }
