"""Kept lines for the agent: the evidence of an attempt, and bodies of lines, both in bounded number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from diagnose.compression.kept_log import NOTABLE
from diagnose.compression.snapshot import NOTABLE_ID
from diagnose.diagnosis.evidence import MOST, Event, Evidence
from diagnose.knowledge.rules import Rule
from diagnose.reading.prefixes import Origin, body_start
from diagnose.reading.sources import Source
from service.store import tables as t

_HEAD, _TAIL = 5_000, 3_000
_LONGEST = 4_000


def evidence(connection: Connection, attempt_id: int, rules: Sequence[Rule]) -> Evidence:
    """The evidence of an attempt: all its kept lines, or the first, the last, and those between that rules know."""
    k = t.kept_lines.c
    last = connection.execute(select(k.ord).where(k.attempt_id == attempt_id).order_by(k.ord.desc()).limit(1)).scalar()
    count = int(last) + 1 if last is not None else 0
    query = select(k.ord, k.source, k.line, k.text, k.rule, k.cut).where(k.attempt_id == attempt_id)
    rows: list[Row[Any]]
    if count <= MOST:
        rows = list(connection.execute(query.order_by(k.ord)))
    else:
        ends = query.where(or_(k.ord < _HEAD, k.ord >= count - _TAIL)).order_by(k.ord)
        known = query.where(k.ord >= _HEAD, k.ord < count - _TAIL, k.rule.is_not(None)).order_by(k.ord)
        rows = [*connection.execute(ends), *connection.execute(known.limit(MOST - _HEAD - _TAIL))]
        rows.sort(key=lambda row: row.ord)
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    numbers[NOTABLE_ID] = NOTABLE
    events = []
    for row in rows:
        raw = row.text.encode("utf-8", "replace")
        text = raw[:_LONGEST].decode("utf-8", "replace")
        start = body_start(raw)
        rule = numbers.get(row.rule, -1) if row.rule is not None else -1
        events.append(Event(row.ord, row.source, row.line, text, rule, start, row.cut + max(0, len(raw) - _LONGEST)))
    return Evidence(events, rules, sources(connection, attempt_id), count - len(events))


def sources(connection: Connection, attempt_id: int) -> list[Source]:
    s = t.sources.c
    rows = connection.execute(select(s.name, s.rank, s.node).where(s.attempt_id == attempt_id).order_by(s.number))
    return [Source(row.name, None, told=Origin(rank=row.rank, node=row.node)) for row in rows]


def line(connection: Connection, attempt_id: int, source: str | None, number: int) -> Any:
    """The kept line at a place: (text, source name, line, rank, node)."""
    k, s = t.kept_lines.c, t.sources.c
    query = (
        select(k.text, s.name, k.line, k.rank, k.node)
        .join(t.sources, (s.attempt_id == k.attempt_id) & (s.number == k.source))
        .where(k.attempt_id == attempt_id, k.line == number)
        .order_by(k.ord)
    )
    return connection.execute(query.where(s.name == source) if source is not None else query).first()


def bodies(connection: Connection, attempt_id: int, limit: int) -> list[str]:
    """The bodies of an attempt's first kept lines."""
    k = t.kept_lines.c
    rows = connection.execute(select(k.text).where(k.attempt_id == attempt_id, k.cut == 0).order_by(k.ord).limit(limit))
    return [_body(text) for (text,) in rows]


def healthy(connection: Connection, attempts: int, lines: int) -> list[str]:
    """Bodies of kept lines of the latest runs that went well."""
    a = t.attempts.c
    ids = connection.execute(
        select(a.id)
        .where(a.state == "ended", a.outcome == "healthy", a.ended_by.in_(("exit", "log")))
        .order_by(a.ended_at.desc())
        .limit(attempts)
    ).scalars()
    return [body for attempt in ids for body in bodies(connection, attempt, lines)]


def _body(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    return raw[body_start(raw) :].decode("utf-8", "replace")
