"""How often each model was right. It is stored, so that a model earns trust once and not after each restart."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from diagnose.agent.witnesses import Record
from service.store import tables as t
from service.store.upsert import upsert


def records(connection: Connection) -> dict[str, Record]:
    """model -> its record."""
    w = t.witnesses.c
    found: dict[str, Record] = {}
    for row in connection.execute(select(w.model, w.kind, w.right, w.wrong)):
        found.setdefault(row.model, Record()).seen[row.kind] = [row.right, row.wrong]
    return found


def keep(connection: Connection, records: Mapping[str, Record]) -> None:
    rows = [
        {"model": model, "kind": kind, "right": right, "wrong": wrong}
        for model, record in records.items()
        for kind, (right, wrong) in record.seen.items()
    ]
    if rows:
        upsert(connection, t.witnesses, rows)
