"""The ranks of an attempt: how far each came, when it was last heard, and its last words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, func, select

from diagnose.reading.prefixes import Origin
from diagnose.reading.sources import Source
from service.store import tables as t

_LATEST: Final = 20_000
"""kept lines in which last words are looked for: a page may not read a million"""
_MOST: Final = 8_192
"""ranks"""
_WORDS: Final = 400
"""characters of last words that are read"""


@dataclass(slots=True)
class Heard:
    """What is known of one rank."""

    rank: int
    node: str | None = None
    step: float | None = None
    last_seen: float | None = None
    """when the last of its lines came; None if it has no log of its own"""
    words: str | None = None
    """its last kept line"""


def heard(connection: Connection, attempt_id: int) -> list[Heard]:
    """All ranks that have a log of their own or that kept lines name, in order."""
    found: dict[int, Heard] = {}
    s = t.sources.c
    for row in connection.execute(
        select(s.name, s.rank, s.node, s.last_seen, s.step).where(s.attempt_id == attempt_id).order_by(s.number)
    ):
        whose = Source(row.name, None, told=Origin(rank=row.rank, node=row.node)).origin
        if whose.rank is None:
            continue
        one = found.setdefault(whose.rank, Heard(whose.rank))
        one.node = one.node or whose.node
        one.step = row.step if one.step is None else max(one.step, row.step or one.step)
        one.last_seen = max(row.last_seen, one.last_seen or row.last_seen)
    for rank, node, words in _last_words(connection, attempt_id):
        one = found.setdefault(rank, Heard(rank))
        one.node, one.words = one.node or node, words
    return [found[rank] for rank in sorted(found)[:_MOST]]


def _last_words(connection: Connection, attempt_id: int) -> list[tuple[int, str | None, str]]:
    k = t.kept_lines.c
    top = connection.execute(select(func.max(k.ord)).where(k.attempt_id == attempt_id)).scalar()
    if top is None:
        return []
    recent = and_(k.attempt_id == attempt_id, k.ord > top - _LATEST, k.rank.is_not(None))
    last = select(func.max(k.ord)).where(recent).group_by(k.rank)
    query = select(k.rank, k.node, func.substr(k.text, 1, _WORDS)).where(k.attempt_id == attempt_id, k.ord.in_(last))
    return [(rank, node, words) for rank, node, words in connection.execute(query)]
