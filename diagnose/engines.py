"""Ways to scan a block, with one outcome; see the table in ``matcher``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from diagnose import shapes
from diagnose.databases import Databases, Wheel, core
from diagnose.lines import LONGEST
from diagnose.metrics import CONSTANT, Column, packed, value_of
from diagnose.prefixes import body_start
from diagnose.scan import BLANKS, UNKNOWN, Bench, Cursor, Scan, Tally

_AMBIGUOUS = 1
_CONTROL = re.compile(rb"[\r\0\x1b]")
_MASK = bytes(ord("0") if 48 <= byte < 58 else 0x80 if byte >= 0x80 else byte for byte in range(256))
_MOST_KNOWN, _LONGEST_KEY = 100_000, 2048


class Engine(Protocol):
    def use(self, databases: Databases) -> None: ...
    def scan(self, block: bytes, cursor: Cursor) -> Scan: ...


class PlainEngine:
    """Every segment through Hyperscan, nothing remembered."""

    def __init__(self, bench: Bench, wheel: Wheel | None = None) -> None:
        self._bench = bench
        self._wheel = wheel or Wheel()
        self._blind: list[Any] = []
        self._relaxed: list[Any] = []
        self._sensitive: list[Any] = []
        self._hits: list[int] = []
        self._on_hit = self._make_handler()

    def _make_handler(self) -> Callable[..., None]:
        append = self._hits.append
        return lambda number, start, end, flags, context: append(number)

    def use(self, databases: Databases) -> None:
        load = self._wheel.load
        groups = zip(databases.base, databases.delta, strict=True)
        self._blind, self._relaxed, self._sensitive = ([load(data) for data in group if data] for group in groups)

    def _scan_all(self, databases: list[Any], body: bytes) -> list[int]:
        self._hits.clear()
        for database in databases:
            database.scan(body, self._on_hit)
        return self._hits

    def candidates(self, body: bytes) -> list[int]:
        """The rules that Hyperscan says match, in order of precedence."""
        hits = {*self._scan_all(self._blind, body)}
        hits.update(self._scan_all(self._sensitive, body))
        return sorted(hits, key=self._bench.key)

    def judge(self, body: bytes) -> int:
        return next((number for number in self.candidates(body) if self._bench.confirms(number, body)), UNKNOWN)

    def judge_shape(self, body: bytes) -> tuple[int, int]:
        """The verdict that holds for the whole shape of ``body``, and whether lines of it must be judged one by one."""
        best = min(self._scan_all(self._blind, body), key=self._bench.key, default=UNKNOWN)
        return best, _AMBIGUOUS if self._scan_all(self._relaxed, body) else 0

    def scan(self, block: bytes, cursor: Cursor) -> Scan:
        tally = Tally(self._bench, cursor)
        *lines, rest = block.split(b"\n")
        at = 0
        for raw in lines:
            tally.line_of_segments(raw, at, self.judge)
            tally.end_line()
            at += len(raw) + 1
        tally.line_of_segments(rest, at, self.judge)
        return tally.result()


class _Metric(NamedTuple):
    """The lines of a shape are metric lines: their rule, and each number's series, scale, place and constant value."""

    rule: int
    numbers: list[tuple[int, float, int, int, float | None]]


class _Failure(NamedTuple):
    """The lines of a shape are kept: this failure rule matches them."""

    rule: int


class _Ask(NamedTuple):
    """The lines of a shape are judged one by one; their bodies begin here."""

    body: int


class _Odd(NamedTuple):
    """The lines of a shape go the long way round: control bytes, great length, numbers that only expressions find."""


_BLANK, _UNKNOWN, _ODD = -2, UNKNOWN, _Odd()


class WheelEngine(PlainEngine):
    """Verdicts remembered by the line with every digit as 0, so that a line of a known shape costs a look-up.

    The key keeps lengths, so a number stands at the same place in all lines of a key. A verdict is a rule's number for
    lines that are dropped and nothing more, and something else where there is more to do.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._known: dict[bytes, Any] = {}

    def use(self, databases: Databases) -> None:
        super().use(databases)
        self._known.clear()

    def scan(self, block: bytes, cursor: Cursor) -> Scan:
        tally = Tally(self._bench, cursor)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        *lines, rest = block.split(b"\n")
        keys = block.translate(_MASK).split(b"\n")
        at = 0
        if cursor.content and lines:  # this line began in the block before
            at = len(lines[0]) + 1
            tally.line_of_segments(lines[0], 0, self.judge)
            tally.end_line()
            del lines[0], keys[0]
        verdicts = list(map(self._known.get, keys[: len(lines)]))
        if None in verdicts:
            for index, verdict in enumerate(verdicts):
                if verdict is None:
                    verdicts[index] = self._verdict(lines[index], keys[index])
        plain = Counter(verdict for verdict in verdicts if verdict.__class__ is int)
        first = tally.line
        if plain.total() - plain.pop(_UNKNOWN, 0) < len(verdicts):
            self._special(tally, lines, verdicts, at)
        tally.line = first + len(verdicts)
        tally.lines += plain.total()
        tally.blank += plain.pop(_BLANK, 0)
        tally.dropped.update(plain)
        tally.line_of_segments(rest, len(block) - len(rest), self.judge)
        return tally.result()

    def _special(self, tally: Tally, lines: list[bytes], verdicts: list[Any], at: int) -> None:
        """The lines that are not simply dropped."""
        first = tally.line
        starts = list(accumulate(map(len, lines), initial=at))
        for index, verdict in enumerate(verdicts):
            if verdict.__class__ is int and verdict != _UNKNOWN:
                continue
            raw, start = lines[index], starts[index] + index
            tally.line = first + index
            if verdict.__class__ is _Metric:
                tally.content, tally.rule = True, verdict.rule
                tally.values(
                    [
                        (series, (float(raw[a:b]) if constant is None else constant) * scale)
                        for series, scale, a, b, constant in verdict.numbers
                    ],
                    start,
                    start + len(raw),
                )
            elif verdict.__class__ is _Odd:
                tally.line_of_segments(raw, start, self.judge)
            elif verdict.__class__ is _Ask:
                tally.segment(raw, start, self.judge)
            else:
                rule = verdict if verdict.__class__ is int else verdict.rule
                tally.keep(raw, rule, 0, start, start + len(raw))
            tally.end_line()

    def _verdict(self, raw: bytes, key: bytes) -> Any:
        """Judge the first line of a key, and remember what holds for all of them."""
        known = self._known.get(key)
        if known is None:
            known = self._judge_key(raw)
            if len(key) <= _LONGEST_KEY:
                self._known[key] = known
        return known

    def _judge_key(self, raw: bytes) -> Any:
        if _CONTROL.search(raw) or len(raw) > LONGEST:
            return _ODD
        start = body_start(raw)
        body = raw[start:]
        if not body.strip(BLANKS):
            return _BLANK
        rule, flags = self.judge_shape(body)
        if flags:
            return _Ask(start)
        if rule == UNKNOWN:
            return _UNKNOWN
        action = self._bench.actions[rule]
        if action == "F":
            return _Failure(rule)
        if action == "D":
            return rule
        found = self._bench.readings(rule, body)
        if found is None:
            return _ODD
        spans = self._bench.captures(rule, body)
        numbers = []
        for reading, (series, scale, first, last) in zip(
            found, [s for s in spans if _has_number(body, s)], strict=True
        ):
            constant = reading.constant if reading.run == CONSTANT else None
            numbers.append((series, scale, start + first, start + last, constant))
        return _Metric(rule, numbers)


def _has_number(body: bytes, span: tuple[int, float, int, int]) -> bool:
    return value_of(body[span[2] : span[3]]) is not None


class CoreEngine:
    """The native core; it asks back about what it cannot decide."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._scanner = core.Scanner(int.from_bytes(os.urandom(8), "little"))
        self._native = bench.engine == "core"
        self._judge = None if self._native else PlainEngine(bench)

    def use(self, databases: Databases) -> None:
        actions = bytearray(self._bench.actions, "ascii")
        for number, rule in enumerate(self._bench.rules):
            if shapes.needs_confirmation(rule.pattern):
                actions[number] |= 0x80
        if self._judge is not None:
            self._judge.use(databases)
        pairs = zip(databases.base, databases.delta, strict=True)
        self._scanner.use(bytes(actions), [data for pair in pairs for data in pair] if self._native else [])

    def scan(self, block: bytes, cursor: Cursor) -> Scan:
        text, kept, numbers, by_hand, dropped, lines, blank, lines_kept, bytes_kept, after = self._scanner.scan(
            block, tuple(cursor), self
        )
        names = self._bench.series
        columns = {series: Column.of_bytes(*columns) for series, _, *columns in numbers}
        if by_hand:
            tally = Tally(self._bench, cursor)
            for start, end, line, rule, body in by_hand:
                tally.line = line
                tally.read(rule, body, start, end)
            for series, column in tally.columns.items():
                columns[series] = columns[series].merged(column) if series in columns else column
        return Scan(
            Cursor(*after),
            text,
            kept,
            {names[series]: column for series, column in sorted(columns.items())},
            dropped,
            lines,
            blank,
            lines_kept,
            bytes_kept,
        )

    # What the core calls back. ``judge_shape`` only where it has no libhs of its own.

    def judge_shape(self, body: bytes) -> tuple[int, int]:
        assert self._judge is not None
        return self._judge.judge_shape(body)

    def judge(self, body: bytes) -> int:
        return self._judge.judge(body) if self._judge is not None else self._bench.judge(body)

    def fields(self, rule: int, body: bytes) -> bytes | None:
        found = self._bench.readings(rule, body)
        return None if found is None else packed(found)


ENGINES: dict[str, Callable[[Bench], Engine]] = {
    "core": CoreEngine,
    "core+wheel": CoreEngine,
    "wheel": WheelEngine,
    "plain": PlainEngine,
}
