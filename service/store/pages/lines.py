"""Kept lines of an attempt, around a place, at the end, or page by page."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from service.store.tables import (
    kept_lines,
    sources,
)


def _lines(attempt_id: int) -> Select[Any]:
    k = kept_lines.c
    return (
        select(k.ord, sources.c.name.label("source"), k.line, k.text, k.rule, k.cut, k.rank, k.node)
        .join(sources, and_(sources.c.attempt_id == k.attempt_id, sources.c.number == k.source))
        .where(k.attempt_id == attempt_id)
    )


def around(connection: Connection, attempt_id: int, source: str, line: int, most: int) -> list[dict[str, Any]]:
    """The kept lines around a line, in the order in which they came."""
    k = kept_lines.c
    here = connection.execute(_lines(attempt_id).where(sources.c.name == source, k.line == line).limit(1)).first()
    if here is None:
        return []
    rows = connection.execute(
        _lines(attempt_id).where(sources.c.name == source, k.ord > here.ord - most, k.ord < here.ord + most).order_by(k.ord)
    )
    return [dict(row._mapping) for row in rows]


def place_of(connection: Connection, attempt_id: int, source: str, line: int) -> int:
    """Where in the order of kept lines a line is, or would be if it was dropped."""
    k = kept_lines.c
    numbers = select(sources.c.number).where(sources.c.attempt_id == attempt_id, sources.c.name == source)
    query = select(func.max(k.ord)).where(k.attempt_id == attempt_id, k.source.in_(numbers), k.line <= line)
    found = connection.execute(query).scalar()
    return -1 if found is None else int(found)


def last_lines(connection: Connection, attempt_id: int, most: int) -> list[dict[str, Any]]:
    """The last kept lines, oldest first."""
    rows = connection.execute(_lines(attempt_id).order_by(kept_lines.c.ord.desc()).limit(most)).all()
    return [dict(row._mapping) for row in reversed(rows)]


def kept(
    connection: Connection,
    attempt_id: int,
    *,
    limit: int,
    after: int,
    search: str | None = None,
    rank: int | None = None,
    node: str | None = None,
    failures: bool = False,
) -> list[dict[str, Any]]:
    """The kept lines that meet a condition."""
    k = kept_lines.c
    query = _lines(attempt_id).where(k.ord > after).order_by(k.ord).limit(limit)
    if search:
        query = query.where(k.text.icontains(search, autoescape=True))
    if rank is not None:
        query = query.where(k.rank == rank)
    if node is not None:
        query = query.where(k.node == node)
    if failures:
        query = query.where(k.rule.is_not(None), k.rule != "notable")
    return [dict(row._mapping) for row in connection.execute(query)]
