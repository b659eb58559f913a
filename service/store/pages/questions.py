"""What models were asked and said, and how often they turned out right."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, select

from diagnose.errors import installed
from service.store import tables as t

_MOST: Final = 2000
"""the latest questions; of older ones only the record is left"""


def questions(connection: Connection, since: float) -> list[dict[str, Any]]:
    """The questions that were answered, the latest first: what the rules and the model said, and what is known by now."""
    k, a, j, d = t.tasks.c, t.attempts.c, t.jobs.c, t.diagnoses.c
    rows = connection.execute(
        select(k.attempt_id, k.result, k.changed, j.name, a.number, d.reason, d.by, d.confidence)
        .join(t.attempts, a.id == k.attempt_id)
        .join(t.jobs, j.id == a.job_id)
        .join(t.diagnoses, d.attempt_id == k.attempt_id)
        .where(k.kind == "ask", k.state == "done", k.changed >= since)
        .order_by(k.id.desc())
        .limit(_MOST)
    ).all()
    known = _known(connection)
    found = []
    for row in rows:
        result = row.result or {}
        if not result.get("asked"):
            continue
        rules = result.get("rules") or [None, None, None, None]
        found.append(
            {
                "job": row.name,
                "attempt": row.number,
                "at": row.changed,
                "model": result.get("model"),
                "rules": rules[2],
                "said": result.get("said"),
                "now": row.reason,
                "by": row.by,
                "confidence": row.confidence,
                "tokens": result.get("tokens", 0),
                "replaced": bool(result.get("replaced")),
                "known": known.get(row.attempt_id),
            }
        )
    return found


def _known(connection: Connection) -> dict[int, str]:
    """attempt -> its reason, as a person corrected it or an action that helped confirmed it."""
    c, k, d = t.corrections.c, t.tasks.c, t.diagnoses.c
    helped = connection.execute(
        select(k.attempt_id, d.reason)
        .join(t.diagnoses, d.attempt_id == k.attempt_id)
        .where(k.kind == "confirm", k.state == "done", k.ref.like("action/%"))
    )
    found = {attempt: reason for attempt, reason in helped}  # noqa: C416 - dict() of rows is not typed
    corrected = connection.execute(select(c.attempt_id, c.reason).order_by(c.id))
    return found | {attempt: reason for attempt, reason in corrected}  # noqa: C416


def records(connection: Connection) -> list[dict[str, Any]]:
    """How often each model was right, by the kind of evidence that the rules had."""
    if not installed("diagnose.agent"):
        return []
    from service.store import incidents  # the model's side may be deleted

    return [
        {
            "model": model,
            "kind": kind,
            "right": right,
            "wrong": wrong,
            "trust": record.trust(kind),
            "proved": record.proved,
        }
        for model, record in sorted(incidents.records(connection).items())
        if model != "*"
        for kind, (right, wrong) in sorted(record.seen.items())
    ]
