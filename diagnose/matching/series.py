"""The numbers in metric lines -> time series of bounded size.

A series that outgrows its room merges neighbouring points into buckets. A bucket keeps the least, the greatest, the mean and
the count, so a spike of one step never disappears.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

NUMBER = re.compile(rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(rb"[-+]?(?:nan|inf|infinity)\Z", re.IGNORECASE)
_RUN = re.compile(rb"[0-9]+")

UNITS = {"step_time_ms": ("step_time_s", 1e-3)}
"""names that are another series in another unit"""

_FIELD = struct.Struct("<HHbxHdd")
CONSTANT = 0xFFFF
_MOST_RUNS = 256
Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one number stands in the bodies of one shape: ``lead`` bytes before digit run ``run``."""

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
    """How to read the captured numbers from every body of the same shape. None if that is not certain.

    ``captures`` are (series, scale, start, end). A number is certain if it begins at a digit run, or at a sign or point before
    one, and if reading greedily from there ends where the capture ends. Both then hold for the whole shape. The native core has
    a twin of this function, which packs the result.
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
    """``found`` in the form that the native core wants."""
    return b"".join(_FIELD.pack(r.series, r.run, r.lead, 0, r.scale, r.constant) for r in found)


@dataclass(slots=True)
class Column:
    """The values of one series in one block, in order of their place."""

    steps: Any
    values: Any
    lines: Any
    starts: Any
    ends: Any

    @staticmethod
    def empty() -> Column:
        return Column(array("d"), array("d"), array("Q"), array("I"), array("I"))

    @staticmethod
    def of_bytes(steps: Bytes, values: Bytes, lines: Bytes, starts: Bytes, ends: Bytes) -> Column:
        view = memoryview
        return Column(
            view(steps).cast("d"),
            view(values).cast("d"),
            view(lines).cast("Q"),
            view(starts).cast("I"),
            view(ends).cast("I"),
        )

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.steps, self.values, self.lines, self.starts, self.ends

    def append(self, step: float, value: float, line: int, start: int, end: int) -> None:
        self.steps.append(step)
        self.values.append(value)
        self.lines.append(line)
        self.starts.append(start)
        self.ends.append(end)

    def merged(self, other: Column) -> Column:
        """Both, in order of place in the block. The native core has a twin of this."""
        starts = [*self.starts, *other.starts]
        order = sorted(range(len(starts)), key=starts.__getitem__)

        def sorted_(kind: str, mine: Any, others: Any) -> Any:
            return array(kind, map([*mine, *others].__getitem__, order))

        return Column(
            sorted_("d", self.steps, other.steps),
            sorted_("d", self.values, other.values),
            sorted_("Q", self.lines, other.lines),
            array("I", map(starts.__getitem__, order)),
            sorted_("I", self.ends, other.ends),
        )


def summary(values: Any, start: int, end: int) -> tuple[int, float, float, int, float, int]:
    """Of ``values[start:end]``: (count of finite ones, their sum, the least, where, the greatest, where)."""
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


def rows(values: Any, steps: Any, lines: Any, start: int, width: int) -> bytes:
    """The values from ``start`` on as buckets of ``width``: seven doubles each, see ``Bucket``."""
    result = array("d")
    for at in range(start, len(values), width):
        end = min(len(values), at + width)
        finite, total, least, _, most, _ = summary(values, at, end)
        result.extend((lines[at], steps[at], end - at, finite, total, least, most))
    return result.tobytes()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring values as one point."""

    line: int
    step: float
    count: int
    finite: int
    total: float
    least: float
    most: float


_FIELDS = ("line", "step", "count", "finite", "total", "least", "most")
_WIDTH = len(_FIELDS)
_EMPTY = (0.0, math.nan, 0.0, 0.0, 0.0, math.inf, -math.inf)
_MERGE: dict[str, Callable[[float, float], float]] = {"count": add, "finite": add, "total": add, "least": min, "most": max}
"""how a field of two neighbours merges; other fields are the first one's"""


def of_points(points: array[float], count: int) -> array[float]:
    """The table of a series of ``count`` numbers from its ``points``."""
    if len(points) != 3 * count:
        raise ValueError(f"a series of {count} numbers has {len(points)} values")
    table = array("d", [1.0]) * (count * _WIDTH)  # a number each, which is finite
    lines, steps, values = points[:count], points[count : 2 * count], points[2 * count :]
    table[0::_WIDTH], table[1::_WIDTH] = lines, steps
    table[_FIELDS.index("least") :: _WIDTH] = table[_FIELDS.index("most") :: _WIDTH] = values
    table[_FIELDS.index("total") :: _WIDTH] = array("d", (value + 0.0 for value in values))  # a sum is never -0.0
    return table


def whole_buckets(table: array[float]) -> array[float]:
    if len(table) % _WIDTH:
        raise ValueError(f"{len(table)} values are no whole buckets")
    return table


@dataclass(slots=True)
class Series:
    """One number over the life of a job: at most ``room`` buckets of ``width`` values. Only the last bucket may hold fewer."""

    room: int = 512
    width: int = 1
    table: array[float] = field(default_factory=lambda: array("d"))
    """the buckets as doubles (which hold lines and counts exactly), one after another"""
    count: int = 0
    not_finite: int = 0
    first: float = math.nan
    last: float = math.nan
    last_step: float = math.nan
    least: float = math.inf
    least_step: float = math.nan
    most: float = -math.inf
    most_step: float = math.nan

    def column(self, name: str) -> array[float]:
        """One field of all buckets. This is much cheaper than the buckets."""
        return self.table[_FIELDS.index(name) :: _WIDTH]

    @property
    def size(self) -> int:
        """How many buckets it has."""
        return len(self.table) // _WIDTH

    def bucket(self, number: int) -> Bucket:
        """One of its buckets, the first is 0. To make them all takes long."""
        line, step, count, finite, total, least, most = self.table[number * _WIDTH : (number + 1) * _WIDTH]
        return Bucket(int(line), step, int(count), int(finite), total, least, most)

    @property
    def buckets(self) -> list[Bucket]:
        return [self.bucket(number) for number in range(self.size)]

    def points(self) -> array[float]:
        """The lines, then the steps, then the values: all that buckets of one finite number each can tell."""
        return self.column("line") + self.column("step") + self.column("least")

    def since(self, line: int) -> Series:
        """The same from ``line`` on, as far as its buckets tell."""
        start = next((number for number, at in enumerate(self.column("line")) if at >= line), self.size)
        result = Series(self.room, self.width, self.table[start * _WIDTH :])
        steps, counts, finite, totals, least, most = map(result.column, ("step", "count", "finite", "total", "least", "most"))
        filled = [number for number, count in enumerate(counts) if count]
        if not filled:
            return result
        first = filled[0]
        lowest, highest = min(filled, key=least.__getitem__), max(filled, key=most.__getitem__)
        result.count = int(sum(counts))
        result.not_finite = result.count - int(sum(finite))
        result.first = totals[first] / finite[first] if finite[first] else math.nan
        result.last, result.last_step = self.last, self.last_step
        result.least, result.least_step = least[lowest], steps[lowest]
        result.most, result.most_step = most[highest], steps[highest]
        return result

    def extend(self, column: Column, summarise: Any = summary, bucketise: Any = rows) -> None:
        """Add the values of one block. The functions are ``summary`` and ``rows`` or their native twins."""
        values, steps = column.values, column.steps
        size = len(values)
        if not size:
            return
        if not self.count:
            self.first = values[0]
        while self.count + size > self.room * self.width:
            self._halve()
        missing = min(size, -self.count % self.width)
        if missing:  # fill the last bucket first
            finite, total, least, _, most, _ = summarise(values, 0, missing)
            more = (missing, finite, total, least, most)
            merged = (merge(*pair) for merge, *pair in zip(_MERGE.values(), self.table[-len(more) :], more, strict=True))
            self.table[-len(more) :] = array("d", merged)
        self.table.frombytes(bucketise(values, steps, column.lines, missing, self.width))
        self.count += size
        self.last, self.last_step = values[size - 1], steps[size - 1]
        finite, _, least, least_at, most, most_at = summarise(values, 0, size)
        self.not_finite += size - finite
        if finite and least < self.least:
            self.least, self.least_step = least, steps[least_at]
        if finite and most > self.most:
            self.most, self.most_step = most, steps[most_at]

    def then(self, later: Series) -> Series:
        """Both as one. The other begins where this one has ended."""
        parts = [Series(one.room, one.width, one.table[:]) for one in (self, later)]
        width = max(self.width, later.width)
        for one in parts:
            while one.width < width:
                one._halve()
        both = Series(self.room, width, parts[0].table + parts[1].table, self.count + later.count)
        both.not_finite = self.not_finite + later.not_finite
        both.first, both.last, both.last_step = self.first, later.last, later.last_step
        least, most = min(self, later, key=lambda one: one.least), max(self, later, key=lambda one: one.most)
        both.least, both.least_step, both.most, both.most_step = least.least, least.least_step, most.most, most.most_step
        while len(both.table) > both.room * _WIDTH:
            both._halve()
        return both

    def shrink(self, room: int) -> None:
        """To so many buckets at most, from here on too."""
        self.room = room
        while self.count > self.room * self.width:
            self._halve()

    def _halve(self) -> None:
        if len(self.table) % (2 * _WIDTH):
            self.table.extend(_EMPTY)
        halved = array("d", bytes(len(self.table) // 2 * self.table.itemsize))
        for number, name in enumerate(_FIELDS):
            left, right = (self.table[at :: 2 * _WIDTH] for at in (number, number + _WIDTH))
            halved[number::_WIDTH] = array("d", _merged(name, left, right)) if name in _MERGE else left
        self.table = halved
        self.width *= 2


def _merged(name: str, left: array[float], right: array[float]) -> list[float]:
    """One field of pairs of buckets. Comparisons in the loop are three times as fast as ``min`` and ``max``."""
    if name == "least":
        return [b if b < a else a for a, b in zip(left, right, strict=True)]
    if name == "most":
        return [b if b > a else a for a, b in zip(left, right, strict=True)]
    return list(map(_MERGE[name], left, right))
