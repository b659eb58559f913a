"""What the scheduler said of attempts when they were decided about, and what a claim on one of them rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from service.store import speakers
from service.store import tables as t
from service.store.upsert import upsert


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
    """The latest of an attempt. ``why`` None: it was confirmed."""
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
    """What was sent of an attempt, by whom: for ``executors.claim``."""
    s, a = t.sources.c, t.attempts.c
    nodes = connection.execute(
        select(s.node).where(s.attempt_id == attempt_id, s.node.is_not(None)).distinct().order_by(s.node)
    )
    return {
        "speakers": [one.as_dict() for one in speakers.of_attempt(connection, attempt_id)],
        "nodes": list(nodes.scalars()),
        "began": connection.execute(select(a.started_at).where(a.id == attempt_id)).scalar(),
        "word": word,
    }
