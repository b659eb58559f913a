"""Who sent something of an attempt, and what the scheduler said of it when it was decided about. What may be done depends on
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from service.projects import Grant
from service.store import tables as t
from service.store.upsert import upsert


def enter_speaker(connection: Connection, attempt_id: int, grant: Grant) -> None:
    """Note once that somebody sent something of it."""
    upsert(connection, t.speakers, [_speaker(attempt_id, grant)])


def enter_first(connection: Connection, spoken: Sequence[tuple[int, Grant]]) -> None:
    """The same for new attempts, of which nobody has sent anything before."""
    if spoken:
        connection.execute(insert(t.speakers), [_speaker(attempt_id, grant) for attempt_id, grant in spoken])


def speakers(connection: Connection, attempt_id: int) -> tuple[Grant, ...]:
    """On whose behalf something of an attempt was sent."""
    s = t.speakers.c
    rows = connection.execute(select(s.binding).where(s.attempt_id == attempt_id).order_by(s.digest))
    return tuple(Grant.of(binding) for binding in rows.scalars())


def _speaker(attempt_id: int, grant: Grant) -> dict[str, object]:
    return {"attempt_id": attempt_id, "digest": grant.digest, "binding": grant.as_dict()}


def keep(
    connection: Connection,
    attempt_id: int,
    at: float,
    *,
    why: str | None,
    owner: str | None,
    subject: str | None,
    nodes: Sequence[str],
    accused: Sequence[str],
) -> None:
    """Store the latest confirmation of an attempt. ``why``: the reason against it; None if it was confirmed."""
    row = {
        "attempt_id": attempt_id,
        "at": at,
        "confirmed": why is None,
        "why": why or "",
        "owner": owner,
        "subject": subject,
        "nodes": list(nodes),
        "accused": list(accused),
    }
    upsert(connection, t.confirmations, [row])


def claim_of(connection: Connection, attempt_id: int, word: str | None = None) -> dict[str, Any]:
    """What was sent of an attempt, and by whom: for ``executors.claim``."""
    s, a = t.sources.c, t.attempts.c
    nodes = connection.execute(
        select(s.node).where(s.attempt_id == attempt_id, s.node.is_not(None)).distinct().order_by(s.node)
    )
    return {
        "speakers": [one.as_dict() for one in speakers(connection, attempt_id)],
        "nodes": list(nodes.scalars()),
        "began": connection.execute(select(a.started_at).where(a.id == attempt_id)).scalar(),
        "word": word,
    }
