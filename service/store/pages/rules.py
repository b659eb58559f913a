"""How much each rule explains and drops."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, distinct, func, select

from service.store.tables import (
    attempts,
    corrections,
    diagnoses,
)


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
