"""What a request says of itself, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.errors import BadName
from service.intake.batch import Batch

HEADER = "x-diagnose-"
"""``X-Diagnose-Rank: 3`` means the same as ``?rank=3``, for shippers that cannot change their URL"""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request. Names of headers are in lower case."""

    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def said(self, name: str) -> str | None:
        """The value of ``name`` in the query, else in a header. An empty value counts as none."""
        return self.query.get(name) or self.headers.get(HEADER + name.replace("_", "-")) or None

    def number(self, name: str) -> int | None:
        text = self.said(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) <= 19):
            raise BadName(f"{text[:40]!r} is not a number", where=name, remedy=f"give {name} as decimal digits")
        return int(text)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(slots=True)
class Decoded:
    """A body after reading: what can be stored, and what cannot and why."""

    batches: list[Batch]
    lines: int = 0
    rejected: int = 0
    why: str | None = None
    """why the first was rejected"""

    def reject(self, why: str, count: int = 1) -> None:
        self.rejected += count
        self.why = self.why or why
