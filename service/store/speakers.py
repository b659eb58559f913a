"""On whose behalf something of an attempt was sent: what may be done because of it follows from that."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from service.projects import Grant
from service.store import tables as t
from service.store.upsert import upsert


def enter(connection: Connection, attempt_id: int, grant: Grant) -> None:
    """Somebody sent something; once is enough."""
    upsert(connection, t.speakers, [_row(attempt_id, grant)])


def enter_new(connection: Connection, spoken: Sequence[tuple[int, Grant]]) -> None:
    """Likewise, of attempts that nobody has sent anything of before."""
    if spoken:
        connection.execute(insert(t.speakers), [_row(attempt_id, grant) for attempt_id, grant in spoken])


def of_attempt(connection: Connection, attempt_id: int) -> tuple[Grant, ...]:
    """All that have."""
    s = t.speakers.c
    rows = connection.execute(select(s.binding).where(s.attempt_id == attempt_id).order_by(s.digest))
    return tuple(Grant.of(binding) for binding in rows.scalars())


def _row(attempt_id: int, grant: Grant) -> dict[str, object]:
    return {"attempt_id": attempt_id, "digest": grant.digest, "binding": grant.as_dict()}
