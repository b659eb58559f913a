"""Raw logs."""

from __future__ import annotations

from pydantic import BaseModel


class RawLine(BaseModel):
    line: int | None
    """null: the number of lines before it is unknown"""
    offset: int | None
    """null: secrets were removed, so bytes are no longer at their place"""
    text: str
    cut: int
    """bytes of the line that are not shown"""
    torn: bool
    """a part of the line is missing"""


class RawGap(BaseModel):
    """Bytes of the source that are not kept."""

    offset: int | None
    """null: somewhere before the first wanted line"""
    end: int


class RawPage(BaseModel):
    job: str
    attempt: int
    source: str
    redacted: bool
    lines: list[RawLine]
    gaps: list[RawGap]
    next_line: int | None
    """give it as ``from_line`` for the next page"""
    next_offset: int | None
    """if lines cannot be counted: give it as ``offset``"""


class RawSource(BaseModel):
    source: str
    rank: int | None
    node: str | None
    received: int
    kept_from: int
    """the first byte that is kept"""
    kept_to: int
    lines: int | None
    """lines that end in the known bytes; null: unknown"""
    stored_bytes: int
    """on disk, compressed"""
    redacted: bool


class RawSourceList(BaseModel):
    job: str
    attempt: int
    sources: list[RawSource]
