"""Three ways to scan a block, with the same result; see the table in ``matcher``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from diagnose.matching import shapes
from diagnose.matching.databases import RELAXED, Databases, Wheel, core
from diagnose.matching.scan import UNKNOWN, Bench, Cursor, Scan, Tally
from diagnose.matching.series import Column
from diagnose.reading.lines import LONGEST
from diagnose.reading.prefixes import PREFIXES, body_start

_AMBIGUOUS = 1
_DIGIT, _HIGH, _ODD = 0xFE, 0xFF, b"\x1b"
# Maps the bytes of a line so that lines of one shape become equal: all digits are one byte, all high bytes are one, and so are
# the bytes that make a line odd.
_MASK = bytes(
    _DIGIT if 48 <= byte < 58 else _HIGH if byte >= 0x80 else _ODD[0] if byte in b"\r\0\x1b" else byte for byte in range(256)
)
_MOST_KNOWN, _LONGEST_KEY = 100_000, 2048
_PIECE = 1 << 18


class Engine(Protocol):
    def use(self, databases: Databases) -> None: ...
    def scan(self, block: bytes | memoryview, cursor: Cursor) -> Scan: ...


class PlainEngine:
    """Scans every segment with Hyperscan and remembers nothing."""

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
        known = shapes.analyse(rule.pattern for rule in self._bench.rules)
        rules = enumerate(self._bench.rules)
        self._sensitive = frozenset(number for number, rule in rules if known[rule.pattern].sensitivity)

    def _scan(self, body: bytes) -> list[int]:
        """The numbers that Hyperscan reports for one body, with those of relaxed patterns."""
        self._hits.clear()
        for scan in self._scans:
            scan(body, self._on_hit)
        return self._hits

    def candidates(self, body: bytes) -> list[int]:
        """The rules that Hyperscan says match, in order of precedence."""
        return sorted({number for number in self._scan(body) if number < RELAXED}, key=self._bench.key)

    def judge(self, body: bytes) -> int:
        best = next((number for number in self.candidates(body) if self._bench.confirms(number, body)), UNKNOWN)
        return UNKNOWN if best != UNKNOWN and self._bench.actions[best] == "L" else best

    def judge_shape(self, body: bytes) -> tuple[int, int]:
        """(the verdict for the whole shape of ``body``, whether its lines must be judged one by one)."""
        return self._weighed(self._scan(body))

    def _weighed(self, hits: list[int]) -> tuple[int, int]:
        """``judge_shape`` for numbers that Hyperscan has reported."""
        if len(hits) == 1 and hits[0] < RELAXED and hits[0] not in self._sensitive:
            return hits[0], 0
        blind = [number for number in hits if number < RELAXED and number not in self._sensitive]
        best = min(blind, key=self._bench.key, default=UNKNOWN)
        return best, _AMBIGUOUS if any(number >= RELAXED for number in hits) else 0

    def scan(self, block: bytes | memoryview, cursor: Cursor) -> Scan:
        tally = Tally(self._bench, cursor)
        *lines, rest = bytes(block).split(b"\n")
        at = 0
        for raw in lines:
            tally.line_of_segments(raw, at, self.judge)
            tally.end_line()
            at += len(raw) + 1
        tally.line_of_segments(rest, at, self.judge)
        return tally.result()


# The wheel engine stores one number per shape: UNKNOWN, _BLANK, the rule that drops its lines, or a number above _MORE if there
# is more to do. Numbers are quick to count and to compare.
_BLANK = -2
_MORE = 1 << 20
_FAILURE, _METRIC = 1 << 20, 1 << 21
"""added to a rule: it keeps the lines; it drops them, and there are numbers to read"""
_ASK, _ODD_LINE = 1 << 22, (1 << 22) + 1
"""lines are judged one by one; they have control bytes or are too long, and need the slow way"""
_RULE = (1 << 20) - 1


class WheelEngine(PlainEngine):
    """Remembers verdicts by shape, so a line of a known shape costs one look-up.

    NumPy masks a whole block at once. Then one split gives the shapes of its lines.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        import numpy

        self._numpy = numpy
        self._known: dict[bytes, int] = {}
        self._dropped: list[bool] = []

    def use(self, databases: Databases) -> None:
        super().use(databases)
        self._known.clear()
        self._dropped = [action == "D" and number not in self._sensitive for number, action in enumerate(self._bench.actions)]

    def _keys(self, block: bytes) -> tuple[list[bytes], list[int]]:
        """(the shape of each line of ``block`` with its prefix, where each line begins).

        To make a shape the line is masked, and of each run the first byte stays.
        """
        numpy = self._numpy
        masked = numpy.frombuffer(block.translate(_MASK), numpy.uint8)
        keep = masked < _DIGIT
        keep[:1] = True
        keep[1:] |= masked[1:] != masked[:-1]
        starts = numpy.flatnonzero(masked == 10)
        starts += 1
        return masked.compress(keep).tobytes().split(b"\n"), [0, *starts.tolist()]

    def scan(self, block: bytes | memoryview, cursor: Cursor) -> Scan:
        tally = Tally(self._bench, cursor)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        data = bytes(block)
        start = 0
        while start < len(data):
            # What NumPy works on should stay in the processor's cache.
            end = len(data) if start + _PIECE >= len(data) else data.rfind(b"\n", start, start + _PIECE) + 1
            end = end if end > start else len(data)
            self._scan_piece(tally, data[start:end], start)
            start = end
        return tally.result()

    def _scan_piece(self, tally: Tally, piece: bytes, at: int) -> None:
        """Scan the lines of ``piece``, which stands at ``at`` in the block."""
        keys, starts = self._keys(piece)
        rest, rest_key = piece[starts[-1] :], keys.pop()
        if tally.content and keys:  # this line began in the block before
            self._segments(tally, piece[: starts[1] - 1], keys[0], at)
            tally.end_line()
            del starts[0], keys[0]
        verdicts: list[Any] = list(map(self._known.get, keys))
        if None in verdicts:
            self._learn(piece, starts, keys, verdicts)
        plain = Counter({verdict: count for verdict, count in Counter(verdicts).items() if verdict < _MORE})
        first = tally.line
        if plain.total() - plain.pop(UNKNOWN, 0) < len(verdicts):
            self._special(tally, piece, starts, keys, verdicts, at)
        tally.line = first + len(verdicts)
        tally.lines += plain.total()
        tally.blank += plain.pop(_BLANK, 0)
        tally.dropped.update(plain)
        self._segments(tally, rest, rest_key, at + starts[-1])

    def _learn(self, piece: bytes, starts: list[int], keys: list[bytes], verdicts: list[Any]) -> None:
        """Judge the first line of each shape that is not known. This is the hot loop: one scan and little else per turn."""
        known, prefixes, hits, on_hit = self._known, PREFIXES.match, self._hits, self._on_hit
        scans, dropped, most = self._scans, self._dropped, len(self._dropped)
        for index in [index for index, verdict in enumerate(verdicts) if verdict is None]:
            key = keys[index]
            verdict = known.get(key)  # an earlier line may have been the first of its shape
            if verdict is None:
                start, end = starts[index], starts[index + 1] - 1
                if _ODD in key or end - start > LONGEST:
                    verdict = _ODD_LINE
                else:
                    body = piece[prefixes(piece, start, end).end() : end]  # type: ignore[union-attr]
                    hits.clear()
                    for scan in scans:
                        scan(body, on_hit)
                    if len(hits) == 1 and hits[0] < most and dropped[hits[0]] and not body.isspace():
                        verdict = hits[0]
                    else:
                        verdict = self._verdict_of(body, hits)
                if len(key) <= _LONGEST_KEY:
                    known[key] = verdict
            verdicts[index] = verdict

    def _judge_shape_of(self, body: bytes) -> int:
        """The number to store for the shape of ``body``."""
        return self._verdict_of(body, self._scan(body))

    def _verdict_of(self, body: bytes, hits: list[int]) -> int:
        """The same, from what Hyperscan reported about ``body``."""
        if not body or body.isspace():
            return _BLANK
        rule, ambiguous = self._weighed(hits)
        if ambiguous:
            return _ASK
        if rule == UNKNOWN:
            return UNKNOWN
        action = self._bench.actions[rule]
        if action == "L":
            return UNKNOWN
        return rule + (_FAILURE if action == "F" else _METRIC if action == "M" else 0)

    def _segments(self, tally: Tally, raw: bytes, key: bytes, start: int) -> None:
        """Judge an odd line segment by segment: the frames of a progress bar are as alike as lines are."""
        if b"\x1b" in raw:  # without its escape sequences a line has another shape
            tally.line_of_segments(raw, start, self.judge)
            return
        known = self._known
        keys = key.split(_ODD)
        verdicts = list(map(known.get, filter(None, keys)))
        if verdicts and None not in verdicts and min(verdicts) >= 0 and max(verdicts) < _MORE:  # type: ignore[type-var, operator]
            tally.content, tally.rule = True, verdicts[-1]  # type: ignore[assignment]
            return
        for piece, one in zip(raw.replace(b"\0", b"\r").split(b"\r"), keys, strict=True):
            if piece:
                verdict = known.get(one)
                if verdict is None:
                    verdict = _ODD_LINE if len(piece) > LONGEST else self._judge_shape_of(piece[body_start(piece) :])
                    if len(one) <= _LONGEST_KEY:
                        known[one] = verdict
                if verdict >= _MORE:
                    tally.segment(piece, start, self.judge)
                elif verdict >= 0:
                    tally.content, tally.rule = True, verdict
                elif verdict == UNKNOWN:
                    tally.keep(piece, UNKNOWN, 0, start, start + len(piece))
            start += len(piece) + 1

    def _special(self, tally: Tally, piece: bytes, starts: list[int], keys: list[bytes], verdicts: list[int], at: int) -> None:
        """Take care of the lines that are not simply dropped."""
        first = tally.line
        for index in [index for index, verdict in enumerate(verdicts) if verdict == UNKNOWN or verdict >= _MORE]:
            verdict, start = verdicts[index], starts[index] + at
            raw = piece[starts[index] : starts[index + 1] - 1]
            tally.line = first + index
            if verdict == _ODD_LINE:
                self._segments(tally, raw, keys[index], start)
            elif verdict == _ASK:
                tally.segment(raw, start, self.judge)
            elif verdict >= _METRIC:
                rule = verdict & _RULE
                tally.content, tally.rule = True, rule
                tally.read(rule, raw[body_start(raw) :], start, start + len(raw))
            else:
                rule = verdict & _RULE if verdict >= 0 else UNKNOWN
                tally.keep(raw, rule, 0, start, start + len(raw))
            tally.end_line()


class CoreEngine:
    """The native core. It calls back for what it cannot decide."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._scanner = core.Scanner(int.from_bytes(os.urandom(8), "little"))
        self._native = bench.engine == "core"
        self._judge = None if self._native else PlainEngine(bench)

    def use(self, databases: Databases) -> None:
        actions = bytearray(self._bench.actions, "ascii")
        known = shapes.analyse(rule.pattern for rule in self._bench.rules)
        for number, rule in enumerate(self._bench.rules):
            if known[rule.pattern].confirmed:
                actions[number] |= 0x80
        if self._judge is not None:
            self._judge.use(databases)
        pairs = zip(databases.base, databases.delta, strict=True)
        self._scanner.use(bytes(actions), [data for pair in pairs for data in pair] if self._native else [])

    def scan(self, block: bytes | memoryview, cursor: Cursor) -> Scan:
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
                if series in columns:
                    column = Column.of_bytes(*core.merged(columns[series].parts, column.parts))
                columns[series] = column
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

    # The core calls these. It calls ``judge_shape`` only if it has no libhs of its own.

    def judge_shape(self, body: bytes) -> tuple[int, int]:
        assert self._judge is not None
        return self._judge.judge_shape(body)

    def judge(self, body: bytes) -> int:
        return self._judge.judge(body) if self._judge is not None else self._bench.judge(body)

    def fields(self, rule: int, body: bytes) -> bytes | None:
        return self._bench.fields(rule, body)


ENGINES: dict[str, Callable[[Bench], Engine]] = {
    "core": CoreEngine,
    "core+wheel": CoreEngine,
    "wheel": WheelEngine,
    "plain": PlainEngine,
}
