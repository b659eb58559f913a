"""The result of scanning a block (kept segments, counts, numbers), and the bookkeeping for the engines in Python."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from diagnose.knowledge.rules import Rule
from diagnose.matching.series import Column, value_of
from diagnose.reading.lines import LONGEST, clean
from diagnose.reading.prefixes import body_start

UNKNOWN = -1
"""the verdict if no rule matches: the segment is kept"""
BLANKS = b" \t\f\v"
_SEGMENT_ENDS = re.compile(rb"[\r\0]+")
KEPT = struct.Struct("<QIIiIII")
"""a kept segment: line, offset and length in the kept text, rule, bytes cut off, start and end in the block"""


class Kept(NamedTuple):
    line: int
    offset: int
    length: int
    rule: int
    cut: int
    start: int
    end: int


class Cursor(NamedTuple):
    """Where the scan of a source stands: the current line, and what its segments were so far."""

    line: int = 1
    content: bool = False
    kept: bool = False
    rule: int = UNKNOWN


@dataclass(slots=True)
class Scan:
    """What one block held."""

    cursor: Cursor
    text: bytes = b""
    """the kept segments, each with a LF"""
    kept: bytes = b""
    """a ``KEPT`` record for each kept segment"""
    numbers: dict[str, Column] = field(default_factory=dict)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """(rule, lines)"""
    lines: int = 0
    blank: int = 0
    lines_kept: int = 0
    bytes_kept: int = 0
    folded: int = 0
    """lines that only repeat kept ones; negative if a line that was folded before is kept after all"""
    unfolded: tuple[bytes, bytes] | None = None
    """``text`` and ``kept`` before folding, if that left something out"""

    def before_folding(self) -> Scan:
        """The same with the folded lines: learning needs them."""
        if self.unfolded is None:
            return self
        text, kept = self.unfolded
        return Scan(self.cursor, text, kept)

    def segments(self) -> Iterator[tuple[Kept, bytes]]:
        """The kept segments with their text."""
        for record in map(Kept._make, KEPT.iter_unpack(self.kept)):
            yield record, self.text[record.offset : record.offset + record.length]


class Bench(Protocol):
    """The matcher, as engines see it."""

    @property
    def rules(self) -> Sequence[Rule]: ...
    @property
    def actions(self) -> str: ...
    @property
    def series(self) -> Sequence[str]: ...
    @property
    def engine(self) -> str: ...

    def judge(self, body: bytes) -> int: ...
    def key(self, number: int) -> tuple[int, int]: ...
    def confirms(self, number: int, body: bytes) -> bool: ...
    def captures(self, number: int, body: bytes) -> list[tuple[int, float, int, int]]: ...
    def fields(self, number: int, body: bytes) -> bytes | None: ...


class Tally:
    """Counts one block in Python: physical lines, counts, kept text, numbers."""

    def __init__(self, bench: Bench, cursor: Cursor) -> None:
        self.bench = bench
        self.line, self.content, self.kept, self.rule = cursor
        self.text: list[bytes] = []
        self.length = 0
        self.records: list[Kept] = []
        self.columns: dict[int, Column] = {}
        self.dropped: Counter[int] = Counter()
        self.lines = self.blank = self.lines_kept = 0

    def end_line(self) -> None:
        self.lines += 1
        if not self.content:
            self.blank += 1
        elif self.kept:
            self.lines_kept += 1
        else:
            self.dropped[self.rule] += 1
        self.line += 1
        self.content, self.kept, self.rule = False, False, UNKNOWN

    def keep(self, text: bytes, rule: int, cut: int, start: int, end: int) -> None:
        self.content = self.kept = True
        self.records.append(Kept(self.line, self.length, len(text), rule, cut, start, end))
        self.text.append(text)
        self.length += len(text) + 1

    def read(self, rule: int, body: bytes, start: int, end: int) -> None:
        """Read the numbers of one metric segment with the rule's own expressions."""
        values = [
            (series, value * scale)
            for series, scale, first, last in self.bench.captures(rule, body)
            if (value := value_of(body[first:last])) is not None
        ]
        self.values(values, start, end)

    def values(self, values: list[tuple[int, float]], start: int, end: int) -> None:
        step = math.nan
        for series, value in values:
            if series == 0:
                step = value
        for series, value in values:
            column = self.columns.get(series)
            if column is None:
                column = self.columns[series] = Column.empty()
            column.append(step, value, self.line, start, end)

    def segment(self, raw: bytes, start: int, judge: Callable[[bytes], int]) -> None:
        """Judge one segment, however odd."""
        cut = max(0, len(raw) - LONGEST)
        text = clean(raw[:LONGEST])
        body = text[body_start(text) :]
        if not body.strip(BLANKS) and not cut:
            return
        rule = judge(body)
        end = start + min(len(raw), LONGEST)
        action = self.bench.actions[rule] if rule >= 0 else "?"
        if rule < 0 or action == "F" or cut:
            self.keep(text, rule, cut, start, end)
            return
        self.content, self.rule = True, rule
        if action == "M":
            self.read(rule, body, start, end)

    def line_of_segments(self, raw: bytes, start: int, judge: Callable[[bytes], int]) -> None:
        """Judge a line, or part of one, which CR and NUL may cut into segments."""
        at = 0
        for found in _SEGMENT_ENDS.finditer(raw):
            if found.start() > at:
                self.segment(raw[at : found.start()], start + at, judge)
            at = found.end()
        if at < len(raw):
            self.segment(raw[at:], start + at, judge)

    def result(self) -> Scan:
        self.text.append(b"")
        return Scan(
            Cursor(self.line, self.content, self.kept, self.rule),
            b"\n".join(self.text),
            b"".join(KEPT.pack(*record) for record in self.records),
            {self.bench.series[series]: column for series, column in sorted(self.columns.items())},
            sorted(self.dropped.items()),
            self.lines,
            self.blank,
            self.lines_kept,
            self.length,
        )
