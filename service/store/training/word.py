"""What a training should know, in the answer to its report of progress."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from service.store import tables as t
from service.store.training import alarms

_ENDING = ("restart", "isolate_and_restart", "isolate", "rollback_and_skip")
"""kinds of actions before which a training should save, or must go back"""


def asked(connection: Connection, attempt: int) -> dict[str, Any]:
    """That an action will end the attempt, that it must go back, and what else went wrong."""
    x = t.actions.c
    rows = connection.execute(
        select(x.kind, x.why, x.skip_batches)
        .where(x.attempt_id == attempt, x.kind.in_(_ENDING), x.state.in_(("proposed", "approved", "dispatched")))
        .order_by(x.id.desc())
        .limit(10)
    ).all()
    back = next((row for row in rows if row.kind == "rollback_and_skip" and row.skip_batches), None)
    ending = next((row for row in rows if row.kind != "rollback_and_skip"), None)
    spoilt = [] if back is None else [{"step": int(back.skip_batches[0]), "kind": "loss", "why": back.why, "path": None}]
    return {
        "save": None if ending is None or back is not None else ending.why,
        "alarms": [*spoilt, *alarms.told(connection, attempt)],
    }
