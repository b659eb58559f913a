"""Raw logs."""

from __future__ import annotations

from pydantic import BaseModel


class RawLine(BaseModel):
    line: int | None
    """null: it is not known how many lines came before it"""
    offset: int | None
    """null: secrets were taken out, so that bytes are not where they were"""
    text: str
    cut: int
    """bytes of it beyond those"""
    torn: bool
    """a part of the line is not kept"""


class RawGap(BaseModel):
    """Bytes of the source that are not kept."""

    offset: int | None
    """null: somewhere before the lines that were asked for"""
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
    """where lines cannot be counted: give it as ``offset``"""


class RawSource(BaseModel):
    source: str
    rank: int | None
    node: str | None
    received: int
    kept_from: int
    """the first byte that is kept"""
    kept_to: int
    lines: int | None
    """that end in what was seen; null: it is not known"""
    stored_bytes: int
    """on disk, compressed"""
    redacted: bool


class RawSourceList(BaseModel):
    job: str
    attempt: int
    sources: list[RawSource]
