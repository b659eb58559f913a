"""Ways to scan a block, with one outcome; see the table in ``matcher``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from diagnose import shapes
from diagnose.databases import RELAXED, Databases, Wheel, core
from diagnose.lines import LONGEST
from diagnose.metrics import CONSTANT, Column, packed, value_of
from diagnose.prefixes import body_start
from diagnose.scan import UNKNOWN, Bench, Cursor, Scan, Tally

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
        self._scans: list[Callable[..., None]] = []
        self._sensitive: frozenset[int] = frozenset()
        self._hits: list[int] = []
        append = self._hits.append
        self._on_hit: Callable[..., None] = lambda number, start, end, flags, context: append(number)

    def use(self, databases: Databases) -> None:
        self._scans = [self._wheel.load(data).scan for data in (*databases.base, *databases.delta) if data]
        rules = enumerate(self._bench.rules)
        self._sensitive = frozenset(number for number, rule in rules if shapes.sensitivity(rule.pattern))

    def _scan(self, body: bytes) -> list[int]:
        """The numbers that Hyperscan reports for one body; those of relaxed patterns too."""
        self._hits.clear()
        for scan in self._scans:
            scan(body, self._on_hit)
        return self._hits

    def candidates(self, body: bytes) -> list[int]:
        """The rules that Hyperscan says match, in order of precedence."""
        return sorted({number for number in self._scan(body) if number < RELAXED}, key=self._bench.key)

    def judge(self, body: bytes) -> int:
        return next((number for number in self.candidates(body) if self._bench.confirms(number, body)), UNKNOWN)

    def judge_shape(self, body: bytes) -> tuple[int, int]:
        """The verdict that holds for the whole shape of ``body``, and whether lines of it must be judged one by one."""
        hits = self._scan(body)
        if len(hits) == 1 and hits[0] < RELAXED and hits[0] not in self._sensitive:
            return hits[0], 0
        blind = [number for number in hits if number < RELAXED and number not in self._sensitive]
        best = min(blind, key=self._bench.key, default=UNKNOWN)
        return best, _AMBIGUOUS if any(number >= RELAXED for number in hits) else 0

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


class _Metric:
    """The lines of a shape are metric lines.

    The first one is read by the rule's expressions. Only when another comes is it worth learning where each number stands.
    """

    __slots__ = ("_bench", "_body", "_numbers", "_seen", "rule")

    def __init__(self, bench: Bench, rule: int, body: int) -> None:
        self._bench, self.rule, self._body = bench, rule, body
        self._seen = False
        self._numbers: list[tuple[int, float, int, int, float | None]] | None = None

    def read(self, tally: Tally, raw: bytes, start: int) -> None:
        """The numbers of ``raw``, which stands at ``start``."""
        tally.content, tally.rule = True, self.rule
        end = start + len(raw)
        if self._seen and self._numbers is None:
            self._numbers = self._places(raw)
        self._seen = self._numbers is None and not self._seen
        if self._numbers is None:
            tally.read(self.rule, raw[self._body :], start, end)
            return
        values = [
            (series, (float(raw[first:last]) if constant is None else constant) * scale)
            for series, scale, first, last, constant in self._numbers
        ]
        tally.values(values, start, end)

    def _places(self, raw: bytes) -> list[tuple[int, float, int, int, float | None]] | None:
        """(series, scale, from, to, constant) of each number; None where only the expressions can tell."""
        body = raw[self._body :]
        found = self._bench.readings(self.rule, body)
        if found is None:
            return None
        spans = [
            span for span in self._bench.captures(self.rule, body) if value_of(body[span[2] : span[3]]) is not None
        ]
        return [
            (
                series,
                scale,
                self._body + first,
                self._body + last,
                reading.constant if reading.run == CONSTANT else None,
            )
            for reading, (series, scale, first, last) in zip(found, spans, strict=True)
        ]


class _Failure(NamedTuple):
    """The lines of a shape are kept: this failure rule matches them."""

    rule: int


class _Ask(NamedTuple):
    """The lines of a shape are judged one by one; their bodies begin here."""

    body: int


class _Odd(NamedTuple):
    """The lines of a shape go the long way round: control bytes, great length, numbers that only expressions find."""


_BLANK, _ODD = -2, _Odd()


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
        known = self._known
        verdicts = list(map(known.get, keys[: len(lines)]))
        if None in verdicts:
            odd = _CONTROL.search(block) is not None
            for index, verdict in enumerate(verdicts):
                if verdict is None:
                    key = keys[index]
                    verdict = known.get(key)  # a line before it may have been the first of its kind
                    if verdict is None:
                        verdict = self._judge_key(lines[index], odd)
                        if len(key) <= _LONGEST_KEY:
                            known[key] = verdict
                    verdicts[index] = verdict
        plain = Counter(verdict for verdict in verdicts if verdict.__class__ is int)
        first = tally.line
        if plain.total() - plain.pop(UNKNOWN, 0) < len(verdicts):
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
            if verdict.__class__ is int and verdict != UNKNOWN:
                continue
            raw, start = lines[index], starts[index] + index
            tally.line = first + index
            if verdict.__class__ is _Metric:
                verdict.read(tally, raw, start)
            elif verdict.__class__ is _Odd:
                tally.line_of_segments(raw, start, self.judge)
            elif verdict.__class__ is _Ask:
                tally.segment(raw, start, self.judge)
            else:
                rule = verdict if verdict.__class__ is int else verdict.rule
                tally.keep(raw, rule, 0, start, start + len(raw))
            tally.end_line()

    def _judge_key(self, raw: bytes, odd: bool) -> Any:
        """What holds for all lines of the key of ``raw``. ``odd``: there are control bytes about."""
        if (odd and _CONTROL.search(raw)) or len(raw) > LONGEST:
            return _ODD
        start = body_start(raw)
        body = raw[start:] if start else raw
        if not body or body.isspace():
            return _BLANK
        rule, ambiguous = self.judge_shape(body)
        if ambiguous:
            return _Ask(start)
        if rule == UNKNOWN:
            return UNKNOWN
        action = self._bench.actions[rule]
        if action == "D":
            return rule
        return _Failure(rule) if action == "F" else _Metric(self._bench, rule, start)


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
