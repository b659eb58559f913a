"""What may be deleted, and how: in small transactions, so that no other write waits for long.

Never deleted by age are running attempts, jobs that a person corrected and their kept lines (they are labels), and jobs with an
action or a question to the agent under way. A deleted job leaves behind its entries in the audit trail, what its failures added
to their groups (count, dates, GPU time), the figures of nodes, learned rules and incidents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, or_, select, update

from service.store import tables as t
from service.store.upsert import upsert

A_PART = 5_000
"""rows per transaction"""
_UNDER_WAY = ("approved", "dispatched", "running")


class StoredAttempt(NamedTuple):
    """An attempt whose log may be deleted."""

    id: int
    job: str
    number: int


class Doomed(NamedTuple):
    """A job that is about to be deleted."""

    id: int
    state: str
    attempts: list[int]
    numbers: list[int]
    corrections: int
    actions: int
    lines: int


def old_lines(connection: Connection, before: float, limit: int, only: int | None = None) -> list[StoredAttempt]:
    """Attempts that ended before that time, have kept lines, and are no label. ``only``: this one, if it is among them."""
    a = t.attempts.c
    there = or_(a.lines_deleted.is_(None), a.snapshot.is_not(None))  # the snapshot is deleted with the last of them
    return _attempts(connection, before, limit, only, there, ~_labelled(a.id), ~_asked(a.id))


def old_raw(connection: Connection, before: float, limit: int, only: int | None = None) -> list[StoredAttempt]:
    """Attempts that ended before that time and may have raw logs, also raw logs that came after a deletion."""
    a = t.attempts.c
    return _attempts(connection, before, limit, only, or_(a.raw_deleted.is_(None), a.raw_deleted < a.last_seen))


def _attempts(
    connection: Connection, before: float, limit: int, only: int | None, *conditions: ColumnElement[bool]
) -> list[StoredAttempt]:
    a = t.attempts.c
    if only is not None:
        conditions = (a.id == only, *conditions)
    rows = connection.execute(
        select(a.id, t.jobs.c.name, a.number)
        .join(t.jobs, t.jobs.c.id == a.job_id)
        .where(a.state == "ended", a.ended_at < before, *conditions)
        .order_by(a.ended_at)
        .limit(limit)
    )
    return [StoredAttempt(*row) for row in rows]


def old_jobs(connection: Connection, before: float, limit: int, only: str | None = None) -> list[str]:
    """Jobs without news since that time that may be deleted. ``only``: this one, if it is among them."""
    j, a = t.jobs.c, t.attempts.c
    held = or_(a.state == "running", _labelled(a.id), _asked(a.id), _acted_on(a.id))
    query = select(j.name).where(j.state == "ended", j.last_seen < before, ~exists().where(a.job_id == j.id, held))
    if only is not None:
        query = query.where(j.name == only)
    return list(connection.execute(query.order_by(j.last_seen).limit(limit)).scalars())


def _labelled(attempt: ColumnElement[int]) -> ColumnElement[bool]:
    return exists().where(t.corrections.c.attempt_id == attempt)


def _asked(attempt: ColumnElement[int]) -> ColumnElement[bool]:
    return exists().where(t.tasks.c.attempt_id == attempt, t.tasks.c.state.in_(("waiting", "running")))


def _acted_on(attempt: ColumnElement[int]) -> ColumnElement[bool]:
    return exists().where(t.actions.c.attempt_id == attempt, t.actions.c.state.in_(_UNDER_WAY))


def ended(connection: Connection, job: str, number: int) -> int | None:
    """The key of an attempt that has ended."""
    a = t.attempts.c
    query = select(a.id).join(t.jobs, t.jobs.c.id == a.job_id).where(t.jobs.c.name == job, a.number == number)
    return connection.execute(query.where(a.state == "ended")).scalar()


def has_ended(connection: Connection, one: StoredAttempt) -> bool:
    """Whether it still exists and does not run."""
    return ended(connection, one.job, one.number) == one.id


def doomed(connection: Connection, job: str) -> Doomed | None:
    """What there is of a job."""
    found = connection.execute(select(t.jobs.c.id, t.jobs.c.state).where(t.jobs.c.name == job)).first()
    if found is None:
        return None
    a = t.attempts.c
    rows = connection.execute(select(a.id, a.number, a.state, a.lines_kept).where(a.job_id == found.id)).all()
    ids = [row.id for row in rows]
    c, x = t.corrections.c, t.actions.c
    corrected = connection.execute(select(func.count()).where(c.attempt_id.in_(ids))).scalar_one()
    acted = connection.execute(select(func.count()).where(x.attempt_id.in_(ids), x.state.in_(_UNDER_WAY))).scalar_one()
    state = "running" if any(row.state == "running" for row in rows) else str(found.state)
    return Doomed(found.id, state, ids, [row.number for row in rows], corrected, acted, sum(row.lines_kept for row in rows))


# --- deleting -----------------------------------------------------------------------------------------------------------------


def begin_lines(connection: Connection, one: StoredAttempt, before: float, now: float) -> bool:
    """Begin to delete an attempt's kept lines, if they are still old: a person may have made them a label since."""
    if one not in old_lines(connection, before, 1, one.id):
        return False
    a = t.attempts.c
    connection.execute(update(t.attempts).where(a.id == one.id, a.lines_deleted.is_(None)).values(lines_deleted=now))
    return True


def delete_lines(connection: Connection, attempt_id: int, now: float) -> int:
    """Delete a part of an attempt's kept lines, and with the last of them its snapshot. Returns how many; 0 if none is left."""
    k, a = t.kept_lines.c, t.attempts.c
    it = update(t.attempts).where(a.id == attempt_id)
    connection.execute(it.where(a.lines_deleted.is_(None)).values(lines_deleted=now))
    first = connection.execute(select(func.min(k.ord)).where(k.attempt_id == attempt_id)).scalar()
    if first is None:
        connection.execute(it.values(snapshot=None))
        return 0
    gone = connection.execute(delete(t.kept_lines).where(k.attempt_id == attempt_id, k.ord < first + A_PART))
    return gone.rowcount


def raw_is_deleted(connection: Connection, attempts: list[int], now: float) -> None:
    connection.execute(update(t.attempts).where(t.attempts.c.id.in_(attempts)).values(raw_deleted=now))


def raw_deleted(connection: Connection, oldest: int) -> dict[tuple[str, int], float]:
    """Attempt -> when its raw logs were deleted, if it has an LSN from ``oldest`` on."""
    a = t.attempts.c
    query = select(t.jobs.c.name, a.number, a.raw_deleted).join(t.jobs, t.jobs.c.id == a.job_id)
    rows = connection.execute(query.where(a.lsn >= oldest, a.raw_deleted.is_not(None)))
    return {(name, number): at for name, number, at in rows}


def begin(connection: Connection, job: str, lsn: int, now: float) -> None:
    """From now on the job is deleted: what the journal has of it up to ``lsn`` is not read again."""
    upsert(connection, t.deletions, [{"job": job, "lsn": lsn, "at": now, "done": False}])


def delete_attempt(connection: Connection, attempt_id: int) -> None:
    """Delete what is left of an attempt after its lines."""
    connection.execute(delete(t.attempts).where(t.attempts.c.id == attempt_id))


def finish(connection: Connection, job: str, detail: dict[str, Any], who: str, now: float) -> None:
    """Delete the job itself, with an entry in the audit trail."""
    connection.execute(delete(t.jobs).where(t.jobs.c.name == job))
    connection.execute(update(t.deletions).where(t.deletions.c.job == job).values(done=True))
    connection.execute(insert(t.audit).values(at=now, who=who, what="job.deleted", subject=f"job/{job}", detail=detail))


def deleted(connection: Connection) -> dict[str, int]:
    """Job -> the last LSN that is deleted with it."""
    d = t.deletions.c
    return {row.job: row.lsn for row in connection.execute(select(d.job, d.lsn))}


def begun(connection: Connection) -> list[str]:
    """Deletions that were interrupted."""
    return list(connection.execute(select(t.deletions.c.job).where(t.deletions.c.done.is_(False))).scalars())


def forget(connection: Connection, oldest: int) -> None:
    """Forget deletions that no segment of the journal has. The latest stays: LSNs must not begin again before it."""
    d = t.deletions.c
    latest = connection.execute(select(func.max(d.lsn))).scalar()
    connection.execute(delete(t.deletions).where(d.done, d.lsn < oldest, d.lsn < (latest or 0)))
