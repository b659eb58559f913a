"""What the agent is to do. A task is written in the transaction of its cause, and leaves only when it is done.

=======  =================================================================================================
ask      a final diagnosis that may be wrong: what does a model say?
watch    a job has ended: what does it say for or against the learned rules?
confirm  a person corrected a diagnosis, or what it led to helped: learn from it
=======  =================================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select, true, update

from service.store import tables as t

Kind = Literal["ask", "watch", "confirm"]
TRIES = 3
"""an interrupted task is tried so often; it may have been the fault of another one, so in the end it runs alone"""
_KEPT_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task that is to be entered."""

    kind: Kind
    detail: dict[str, Any] = field(default_factory=dict)
    ref: str = ""
    worth: float = 0.0
    """tasks of more worth begin first"""


@dataclass(frozen=True, slots=True)
class Task:
    """A task that has begun."""

    id: int
    kind: Kind
    attempt_id: int
    job: str
    attempt: int
    ref: str
    detail: dict[str, Any]


def enter(connection: Connection, attempt_id: int, wanted: Wanted, now: float) -> None:
    """Enter a task. If it is known and an ``ask``, it waits again, because there is a new diagnosis."""
    c = t.tasks.c
    same = and_(c.kind == wanted.kind, c.attempt_id == attempt_id, c.ref == wanted.ref)
    if connection.execute(select(c.id).where(same)).first() is None:
        connection.execute(
            insert(t.tasks).values(
                kind=wanted.kind,
                attempt_id=attempt_id,
                ref=wanted.ref,
                detail=wanted.detail,
                worth=wanted.worth,
                state="waiting",
                tries=0,
                created=now,
                changed=now,
            )
        )
    elif wanted.kind == "ask":
        connection.execute(
            update(t.tasks)
            .where(same)
            .values(detail=wanted.detail, worth=wanted.worth, state="waiting", tries=0, changed=now, result=None, before=None)
        )


def begin(connection: Connection, kinds: Sequence[Kind], limit: int) -> list[Task]:
    """Begin tasks that wait: those of most worth first, then the oldest.

    Of those that were interrupted before, of all kinds, only one begins at a time. If it ends the agent's process again, it
    does not take others with it.
    """
    now = time.time()
    c = t.tasks.c
    other = t.tasks.alias().c
    suspect = select(func.min(other.id)).where(other.state == "waiting", other.tries > 0, other.kind.in_(kinds))
    free = ~exists().where(other.state == "running", other.tries > 1)
    rows = connection.execute(
        select(c.id, c.kind, c.attempt_id, c.ref, c.detail, t.jobs.c.name, t.attempts.c.number)
        .join(t.attempts, t.attempts.c.id == c.attempt_id)
        .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .where(c.state == "waiting", c.kind.in_(kinds), or_(c.tries == 0, and_(c.id == suspect.scalar_subquery(), free)))
        .order_by(c.worth.desc(), c.id)
        .limit(limit)
    ).all()
    if rows:
        connection.execute(
            update(t.tasks).where(c.id.in_([row.id for row in rows])).values(state="running", tries=c.tries + 1, changed=now)
        )
    return [Task(row.id, row.kind, row.attempt_id, row.name, row.number, row.ref, row.detail) for row in rows]


def put_back(connection: Connection, ids: Collection[int]) -> None:
    """Nobody does these, for no fault of their own: they wait as if they had not begun."""
    c = t.tasks.c
    connection.execute(
        update(t.tasks)
        .where(c.state == "running", c.id.in_(ids))
        .values(state="waiting", tries=c.tries - 1, changed=time.time())
    )


def cut_off(connection: Connection, ids: Collection[int] | None = None) -> int:
    """The process that did these (by default all that had begun) is gone. They wait again, or are given up after so many
    tries.
    """
    now = time.time()
    c = t.tasks.c
    lost = and_(c.state == "running", c.id.in_(ids) if ids is not None else true())
    given_up = connection.execute(
        update(t.tasks)
        .where(lost, c.tries >= TRIES)
        .values(state="failed", changed=now, result={"problem": f"cut off {TRIES} times"})
    )
    connection.execute(update(t.tasks).where(lost).values(state="waiting", changed=now))
    return int(given_up.rowcount)


def under_way(connection: Connection, task: int) -> bool:
    """Whether it has begun and is not done."""
    c = t.tasks.c
    return connection.execute(select(c.id).where(c.id == task, c.state == "running")).first() is not None


def end(
    connection: Connection, task: int, state: Literal["done", "failed"], result: dict[str, Any], now: float, before: Any = None
) -> None:
    changes: dict[str, Any] = {"state": state, "result": result, "changed": now}
    if before is not None:
        changes["before"] = before
    connection.execute(update(t.tasks).where(t.tasks.c.id == task, t.tasks.c.state == "running").values(**changes))


def answered(connection: Connection, attempt_id: int) -> Any:
    """(result, before) of the answered question about an attempt, or None."""
    c = t.tasks.c
    return connection.execute(
        select(c.result, c.before).where(c.attempt_id == attempt_id, c.kind == "ask", c.state == "done")
    ).first()


def confirmed_by_actions(connection: Connection) -> int:
    """Make ``confirm`` tasks for diagnoses whose action helped: it succeeded, and a later attempt of the job went well.

    If a model has found another reason since, that is not confirmed: the action was for the reason of the rules.
    """
    a, c, d = t.actions.c, t.tasks.c, t.diagnoses.c
    later = t.attempts.alias()
    first = t.attempts.alias()
    rows = connection.execute(
        select(a.id, a.attempt_id, a.reason)
        .join(first, first.c.id == a.attempt_id)
        .join(t.diagnoses, and_(d.attempt_id == a.attempt_id, d.reason == a.reason))
        .where(
            a.state == "succeeded",
            a.kind != "none",
            exists().where(
                later.c.job_id == first.c.job_id,
                later.c.number > first.c.number,
                later.c.state == "ended",
                later.c.outcome == "healthy",
            ),
            ~exists().where(c.attempt_id == a.attempt_id, c.kind == "confirm"),
        )
        .limit(100)
    ).all()
    for row in rows:
        told = {"by": "action", "reason": row.reason}
        enter(connection, row.attempt_id, Wanted("confirm", told, f"action/{row.id}"), time.time())
    return len(rows)


def prune(connection: Connection) -> None:
    """Delete what was done long ago and nobody reads any more."""
    now = time.time()
    c = t.tasks.c
    connection.execute(delete(t.tasks).where(c.kind == "watch", c.state.in_(("done", "failed")), c.changed < now - _KEPT_S))
