"""The job's numbers: read out of metric lines, kept as time series of bounded size.

Down-sampling is honest: a series that outgrows its room merges neighbouring points into buckets that keep the least, the
greatest, the mean and the count, so a spike of one step never disappears.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

NUMBER = re.compile(rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(rb"[-+]?(?:nan|inf|infinity)\Z", re.IGNORECASE)
_RUN = re.compile(rb"[0-9]+")

UNITS = {"step_time_ms": ("step_time_s", 1e-3)}
"""Names that are another series in another unit."""

_FIELD = struct.Struct("<HHbxHdd")
CONSTANT = 0xFFFF
_MOST_RUNS = 256


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one number stands in the bodies of one shape: from the ``lead`` bytes before digit run ``run`` on."""

    series: int
    run: int
    lead: int
    scale: float
    constant: float = math.nan


def value_of(text: bytes) -> float | None:
    """``text`` as a number (also nan, inf), or None."""
    found = NUMBER.match(text)
    if found and found.end() == len(text):
        return float(text)
    return float(text) if _NOT_A_NUMBER.match(text) else None


def readings(body: bytes, captures: Iterable[tuple[int, float, int, int]]) -> list[Reading] | None:
    """How to read the numbers captured in ``body`` out of every body of its shape, or None where that is not certain.

    ``captures`` are (series, scale, start, end). A number is certain when it begins at a digit run, or a sign or point
    before one, and reading greedily from there ends where the capture ends: both then hold for the whole shape.
    """
    starts = {found.start(): number for number, found in enumerate(_RUN.finditer(body))}
    result = []
    for series, scale, start, end in captures:
        text = body[start:end]
        if _NOT_A_NUMBER.match(text):
            result.append(Reading(series, CONSTANT, 0, scale, float(text)))
            continue
        number = NUMBER.match(body, start)
        digit = _RUN.search(body, start, end)
        if number is None or digit is None:
            continue  # captured text without a number
        lead = digit.start() - start
        run = starts.get(digit.start())
        if number.end() != end or run is None or run >= _MOST_RUNS or lead > 2:
            return None
        result.append(Reading(series, run, lead, scale))
    return result


def packed(found: Sequence[Reading]) -> bytes:
    """``found`` as the native core wants it."""
    return b"".join(_FIELD.pack(r.series, r.run, r.lead, 0, r.scale, r.constant) for r in found)


@dataclass(slots=True)
class Column:
    """The values of one series that one block brought, in order of their place."""

    steps: Any
    values: Any
    lines: Any
    starts: Any
    ends: Any

    @staticmethod
    def empty() -> Column:
        return Column(array("d"), array("d"), array("Q"), array("I"), array("I"))

    @staticmethod
    def of_bytes(steps: bytes, values: bytes, lines: bytes, starts: bytes, ends: bytes) -> Column:
        view = memoryview
        return Column(
            view(steps).cast("d"),
            view(values).cast("d"),
            view(lines).cast("Q"),
            view(starts).cast("I"),
            view(ends).cast("I"),
        )

    def append(self, step: float, value: float, line: int, start: int, end: int) -> None:
        self.steps.append(step)
        self.values.append(value)
        self.lines.append(line)
        self.starts.append(start)
        self.ends.append(end)

    def merged(self, other: Column) -> Column:
        """Both, in order of place in the block."""
        rows = sorted(
            zip(
                [*self.starts, *other.starts],
                [*self.steps, *other.steps],
                [*self.values, *other.values],
                [*self.lines, *other.lines],
                [*self.ends, *other.ends],
                strict=True,
            ),
            key=lambda row: row[0],
        )
        result = Column.empty()
        for start, step, value, line, end in rows:
            result.append(step, value, line, start, end)
        return result


def summary(values: Any, start: int, end: int) -> tuple[int, float, float, int, float, int]:
    """(how many are finite, their sum, the least, where, the greatest, where) of ``values[start:end]``."""
    finite, total, least, least_at, most, most_at = 0, 0.0, math.inf, start, -math.inf, start
    for index in range(start, end):
        value = values[index]
        if math.isfinite(value):
            finite += 1
            total += value
            if value < least:
                least, least_at = value, index
            if value > most:
                most, most_at = value, index
    return finite, total, least, least_at, most, most_at


@dataclass(slots=True)
class Bucket:
    """Neighbouring values as one point."""

    line: int
    step: float
    count: int = 0
    finite: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, other: Bucket) -> None:
        self.count += other.count
        self.finite += other.finite
        self.total += other.total
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)


@dataclass(slots=True)
class Series:
    """One number over the life of a job, in at most ``room`` buckets."""

    room: int = 512
    width: int = 1
    """How many values a full bucket holds."""
    buckets: list[Bucket] = field(default_factory=list)
    count: int = 0
    not_finite: int = 0
    first: float = math.nan
    last: float = math.nan
    last_step: float = math.nan
    least: float = math.inf
    least_step: float = math.nan
    most: float = -math.inf
    most_step: float = math.nan

    def extend(self, column: Column, summarise: Any = summary) -> None:
        """The values of one block. ``summarise`` is ``summary`` or its native twin."""
        values, steps, lines = column.values, column.steps, column.lines
        size = len(values)
        if not size:
            return
        if not self.count:
            self.first = values[0]
        self.count += size
        self.last, self.last_step = values[size - 1], steps[size - 1]
        at = 0
        while at < size:
            if not self.buckets or self.buckets[-1].count >= self.width:
                if len(self.buckets) >= self.room:
                    self._halve()
                    continue
                self.buckets.append(Bucket(lines[at], steps[at]))
            bucket = self.buckets[-1]
            end = min(size, at + self.width - bucket.count)
            finite, total, least, least_at, most, most_at = summarise(values, at, end)
            bucket.add(Bucket(0, 0.0, end - at, finite, total, least, most))
            self.not_finite += end - at - finite
            if finite and least < self.least:
                self.least, self.least_step = least, steps[least_at]
            if finite and most > self.most:
                self.most, self.most_step = most, steps[most_at]
            at = end

    def _halve(self) -> None:
        pairs = self.buckets
        self.buckets = []
        for index in range(0, len(pairs), 2):
            bucket = pairs[index]
            if index + 1 < len(pairs):
                bucket.add(pairs[index + 1])
            self.buckets.append(bucket)
        self.width *= 2
