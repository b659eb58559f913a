"""Lines -> kept lines, counts of the others, and the job's numbers.

These are kept: lines of failure rules, lines that no rule knows, segments that had to be cut, and *notable* metric lines. A
metric line is notable if, for example, its loss jumps or is not a number: then it is evidence, although lines like it are
dropped. Beyond a limit the kept lines move to a temporary file, so a job of any size needs little memory.
"""

from __future__ import annotations

import math
import struct
import tempfile
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from operator import truediv
from typing import IO, Any, NamedTuple

from diagnose.compression.facts import MOST, set_aside
from diagnose.compression.folds import Fold, Folding, available, folds
from diagnose.compression.numbers import Numbers, by_name
from diagnose.compression.outliers import Watch, stand_out
from diagnose.compression.starts import SOURCES, Begin, Starts
from diagnose.knowledge.rules import Rule
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import KEPT, Cursor, Scan
from diagnose.matching.series import Column, Series, rows, summary
from diagnose.reading.dumps.reader import BEGINNINGS, may_hold
from diagnose.reading.lines import LONGEST, Block, Blocks, clean
from diagnose.reading.transport import Transport

NOTABLE = -2
"""rule number of a notable metric line"""
FOLDED = "folded"
"""kind of the lines that were folded"""
_IN_MEMORY = 2 << 20
_RULE_AT = 4
"""where the rule stands in a record, in words of four bytes"""
_START_AT = 6
"""and where it begins in the block"""
_HEADER = struct.Struct("<IIQ")
_ROOM = ((8, 512), (64, 64), (1 << 62, 8))
"""(up to so many sources, points per series): if 512 ranks all print their loss, not every series needs all its points"""
_MANY = 64
"""more sources than that make no difference to the points of a series"""
_HEAD = 160
_WATCHED = {"loss": 1.5, "val_loss": 1.5, "grad_norm": 5.0}
_summarise, _bucketise, _stand_out = (
    (core.summary, core.rows, core.stand_out) if core is not None else (summary, rows, stand_out)
)


def _may_begin(text: bytes) -> bool:
    """Whether it is worth while to look for a dump in ``text``."""
    return core is None or core.any_of(text, BEGINNINGS)


class KeptLine(NamedTuple):
    """A segment that was kept."""

    source: int
    line: int
    text: bytes
    rule: int
    """number of the failure rule; -1 if no rule knows it; NOTABLE for a metric line"""
    cut: int
    """bytes that were cut off its end"""


class KeptLog:
    """The kept segments of a job, in the order in which they came."""

    def __init__(self, index: IO[bytes] | None = None, text: IO[bytes] | None = None) -> None:
        """``index`` and ``text``: the files of another one, to read it."""
        self._text = text or tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - lives as long as the job
        self._index = index or tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._end = 0
        self.lines = 0
        self._dumps: dict[int, int] = {}
        """source -> order of the first line of the first block in which a dump may begin"""

    def add(self, source: int, scan: Scan) -> None:
        count = len(scan.kept) // KEPT.size
        if not count:
            return
        if source not in self._dumps and _may_begin(scan.text) and may_hold(scan.text):
            self._dumps[source] = self.lines
        self._text.write(scan.text)
        self._index.write(_HEADER.pack(source, count, self._end) + scan.kept)
        self._end += len(scan.text)
        self.lines += count

    @property
    def files(self) -> tuple[IO[bytes], IO[bytes]]:
        """The index, and the text."""
        return self._index, self._text

    def batches(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(source, records, text) of what each block brought."""
        for source, records, offset in self._batches():
            yield source, records, self._text_of(records, offset) + b"\n"

    def __iter__(self) -> Iterator[KeptLine]:
        """All kept segments. Nothing may be added meanwhile."""
        for row in self.rows():
            yield KeptLine(*row)

    def rows(self) -> Iterator[tuple[int, int, bytes, int, int]]:
        """The same as plain tuples, which is faster for many."""
        for source, records, offset in self._batches():
            text = self._text_of(records, offset)
            for line, start, length, rule, cut, _, _ in KEPT.iter_unpack(records):
                yield source, line, text[start : start + length], rule, cut

    def chosen(
        self, choose: Callable[[int, int, int], bool], among: Callable[[int, int], bool] | None = None
    ) -> Iterator[tuple[int, KeptLine]]:
        """(order, segment) of those that ``choose(order, source, rule)`` takes. The text of the others is not read.

        Unless ``among(first, end)`` says so, ``choose`` is not asked about the orders from ``first`` to before ``end``.
        """
        order = 0
        for source, records, offset in self._batches():
            text: bytes | None = None
            end = order + len(records) // KEPT.size
            if among is not None and not among(order, end):
                order = end
                continue
            for line, start, length, rule, cut, _, _ in KEPT.iter_unpack(records):
                if choose(order, source, rule):
                    if text is None:
                        text = self._text_of(records, offset)
                    yield order, KeptLine(source, line, text[start : start + length], rule, cut)
                order += 1

    def with_dumps(self) -> Iterator[tuple[int, KeptLine]]:
        """(order, segment) of each source, from the first block in which a dump may begin."""
        order = 0
        for source, records, offset in self._batches():
            count = len(records) // KEPT.size
            if order >= self._dumps.get(source, self.lines):
                text = self._text_of(records, offset)
                for number, (line, start, length, rule, cut, _, _) in enumerate(KEPT.iter_unpack(records), order):
                    yield number, KeptLine(source, line, text[start : start + length], rule, cut)
            order += count

    def _batches(self) -> Iterator[tuple[int, bytes, int]]:
        """(source, records, where their text begins) of each block."""
        at = 0
        try:
            while True:
                self._index.seek(at)
                header = self._index.read(_HEADER.size)
                if not header:
                    break
                source, count, offset = _HEADER.unpack(header)
                records = self._index.read(count * KEPT.size)
                at = self._index.tell()
                yield source, records, offset
        finally:
            self._index.seek(0, 2)
            self._text.seek(0, 2)

    def _text_of(self, records: bytes, offset: int) -> bytes:
        last = max(record[1] + record[2] for record in KEPT.iter_unpack(records))
        self._text.seek(offset)
        return self._text.read(last)

    def close(self) -> None:
        self._text.close()
        self._index.close()


@dataclass(slots=True)
class Counts:
    """What came in and what was kept."""

    lines_in: int = 0
    bytes_in: int = 0
    lines_kept: int = 0
    bytes_kept: int = 0
    blank: int = 0
    folded: int = 0
    dropped: Counter[int] = field(default_factory=Counter)
    """rule -> lines"""
    dropped_before: Counter[str] = field(default_factory=Counter)
    """kind -> lines that were dropped by rules which no longer exist"""

    def add(self, other: Counts) -> None:
        for name in ("lines_in", "bytes_in", "lines_kept", "bytes_kept", "blank", "folded"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dropped += other.dropped
        self.dropped_before += other.dropped_before


class Progress:
    """How far one source came, by its metric lines."""

    def __init__(self) -> None:
        self.first = b""
        """the first metric line, up to where a time stamp may end"""
        self.last = b""
        self.last_line = 0

    def see(self, data: memoryview | bytes, column: Column) -> None:
        """A block's numbers. One that was not sure when its line came has no place in the block."""
        if not column.ends[-1]:
            return
        if not self.first:
            start, end = next((start, end) for start, end in zip(column.starts, column.ends, strict=True) if end)
            self.first = bytes(data[start : min(end, start + _HEAD)])
        self.last = bytes(data[column.starts[-1] : min(column.ends[-1], column.starts[-1] + _HEAD)])
        self.last_line = max(self.last_line, column.lines[-1])


_BAR = "progress"
_SIGNS = ("step", "loss", _BAR)


class Course:
    """How a source went on: its numbers, line by line. Of very many sources only a few are asked for more than their sum."""

    def __init__(self, named: Mapping[str, Series], last_line: int) -> None:
        """``named``: the numbers of the source. They do not change while this is used."""
        self._named, self._last_line = named, last_line

    @cached_property
    def _behind(self) -> list[tuple[list[int], list[int]]]:
        """Of each kind of signs: (their lines, how many signs are behind the last line, the last but one and so on)."""
        kinds = [list(self._counted(name)) for name in _SIGNS if name in self._named]
        return [
            ([line for line, _ in marks], list(accumulate((count for _, count in reversed(marks)), initial=0)))
            for marks in kinds
        ]

    def _counted(self, name: str) -> Iterator[tuple[int, int]]:
        """(line, how many signs) of each part of a series."""
        parts = (self._named[name].column(part) for part in ("line", "count", "most"))
        for line, count, most in zip(*parts, strict=True):
            if most != 0 or name != _BAR:  # a bar at 0 has not moved; it is drawn again when its process dies
                yield int(line), int(count)

    def _all_of(self, name: str) -> int:
        series = self._named.get(name)
        return 0 if series is None else series.count if name != _BAR else sum(count for _, count in self._counted(name))

    @cached_property
    def _steps(self) -> tuple[array[float], array[float]]:
        """(lines, steps)"""
        steps = self._named.get("step")
        return (steps.column("line"), steps.column("step")) if steps is not None else (array("d"), array("d"))

    @property
    def _last_step(self) -> float | None:
        steps = self._named.get("step")
        return steps.last if steps is not None and steps.count else None

    @cached_property
    def _least_behind(self) -> list[float]:
        return list(accumulate(reversed(self._steps[1]), min))

    def signs_after(self, line: int) -> int:
        """About how many signs of progress (a step, a loss, a progress bar that moved) follow ``line``."""
        if line <= 0:
            return max(self._all_of(name) for name in _SIGNS)
        return max((behind[len(lines) - bisect_right(lines, line)] for lines, behind in self._behind), default=0)

    def steps_gained(self, line: int) -> float:
        """How many steps the job made after ``line``. Often only every tenth step is printed."""
        before = self.step_at(line)
        last = self._last_step
        return last - before if before is not None and last is not None and self._last_line > line else 0.0

    def begins_anew(self, line: int) -> bool:
        """Whether a process was started after ``line``: the steps there are below those before it, or are the first."""
        lines, steps = self._steps
        at = bisect_right(lines, line)
        if at == len(steps):
            return False
        before = steps[at - 1] if at else None
        return before is None or self._least_behind[len(steps) - at - 1] < before

    def step_at(self, line: int) -> float | None:
        """About the last step before ``line``."""
        if line >= self._last_line:
            return self._last_step
        lines, steps = self._steps
        at = bisect_right(lines, line)
        return steps[at - 1] if at else None


class Stream:
    """One source while it is read."""

    def __init__(self, number: int, folding: Folding | None = None) -> None:
        self.number = number
        self.folds: Any = folds(folding) if folding is not None else None
        self.starts = Starts() if number < SOURCES else None
        self.progress = Progress()
        self.transport = Transport()
        self.blocks = Blocks()
        self.cursor = Cursor()
        self.series: dict[str, Series] = {}
        """what rules captured"""
        self.numbers = Numbers()
        self.found: dict[int, Series] = {}
        """what was found in lines that no rule knows, by the number that ``numbers`` knows it by"""
        self.watches = {name: Watch(factor) for name, factor in _WATCHED.items()}

        self._named: Mapping[str, Series] | None = None
        self._course: Course | None = None
        self.packed: tuple[str, bytes] | None = None
        """its state as a snapshot has it, if it is one of very many and has not changed since: see ``snapshot``"""

    def changes(self) -> None:
        """Forget what was made of its state, for it is about to change."""
        self._named = self._course = self.packed = None

    @property
    def named(self) -> Mapping[str, Series]:
        """All its series: of each quantity one, by its name, and those that are another one of the same quantity by theirs."""
        if not self.found:
            return self.series
        if self._named is None:
            self._named = by_name(self.series, [(self.numbers.keys[number], series) for number, series in self.found.items()])
        return self._named

    @property
    def course(self) -> Course:
        """How it went on, up to now."""
        if self._course is None:
            self._course = Course(self.named, self.progress.last_line)
        return self._course


class Compression:
    """Compresses one job: its kept lines, counts and numbers."""

    def __init__(self, matcher: Matcher, folding: Folding | None = None) -> None:
        """``folding``: fold repeated lines, or only find numbers and runs with it, if the native core is there."""
        self.matcher = matcher
        self.folding = folding if available() else None
        self.counts = Counts()
        self.kept = KeptLog()
        self.facts: list[tuple[int, bytes]] = []
        """(source, text) of lines that say who is who; the first ones"""
        self.streams: dict[int, Stream] = {}
        self._found: dict[str, tuple[int, Series]] | None = None
        """what ``_fullest`` found, if nothing has changed since"""

    def _changes(self, stream: Stream) -> None:
        """``stream`` is about to change."""
        stream.changes()
        self._found = None

    def feed(self, source: int, chunk: bytes) -> list[Scan]:
        """Take the next bytes of a source. Returns the scans that they completed."""
        stream = self.stream(source)
        return [self._add(stream, block) for block in self.blocks(stream, chunk)]

    def blocks(self, stream: Stream, chunk: bytes) -> Iterator[Block]:
        """The segments that are complete with the next bytes of a source: see ``diagnose.compression.ahead``."""
        self.counts.bytes_in += len(chunk)
        self._changes(stream)
        return stream.blocks.feed(stream.transport.feed(chunk))

    def passes(self, stream: Stream, piece: bytes | memoryview) -> bool:
        """Whether these bytes are one block as they are. If so, they count as fed."""
        if not (stream.blocks.ready(piece) and stream.transport.passes(piece)):
            return False
        self.counts.bytes_in += len(piece)
        stream.blocks.bytes_in += len(piece)
        self._changes(stream)
        return True

    def holds(self, source: int) -> bool:
        """Whether whole lines of a source wait for those after them."""
        stream = self.streams.get(source)
        return stream is not None and stream.transport.holds

    def pause(self, source: int) -> list[Scan]:
        """Nothing has come for a while: take the whole lines that wait for those after them."""
        stream = self.stream(source)
        self._changes(stream)
        return [self._add(stream, block) for block in stream.blocks.feed(stream.transport.pause())]

    def close(self, source: int) -> list[Scan]:
        """The source has ended. Its last line counts even without a line end."""
        stream = self.stream(source)
        self._changes(stream)
        scans = [self._add(stream, block) for block in stream.blocks.feed(stream.transport.close())]
        scans += [self._add(stream, block) for block in stream.blocks.close()]
        if stream.cursor.content:
            scans.append(self._add(stream, Block(b"\n")))
        last = self._last_folded(stream)
        return [*scans, last] if last is not None else scans

    def join(self, other: Compression) -> None:
        """Sources that were read apart come behind those of this one; their kept lines have come already."""
        self.counts.add(other.counts)
        self.facts += other.facts[: max(0, MOST - len(self.facts))]
        for number, stream in other.streams.items():
            self._changes(stream)
            for name, series in stream.series.items():
                series.shrink(self._room(self._telling(name)))
            for series in stream.found.values():
                series.shrink(self._room(self._finding()))
            self.streams[number] = stream

    def restart(self, source: int) -> list[Scan]:
        """The source begins again: what comes next is line 1."""
        scans = self.close(source)
        stream = self.stream(source)
        stream.cursor = Cursor()
        stream.transport = Transport()
        if self.folding is not None:
            stream.folds = folds(self.folding)
        if stream.starts is not None:
            stream.starts = Starts()
        return scans

    def series(self, name: str) -> tuple[int, Series] | None:
        """(source, series): the fullest series called ``name``."""
        return self._fullest.get(name)

    @property
    def _fullest(self) -> dict[str, tuple[int, Series]]:
        """name -> (source, series): found in one pass for all names, because a job may have very many sources."""
        if self._found is None:
            self._found = {}
            for number, stream in self.streams.items():
                for name, series in stream.named.items():
                    known = self._found.get(name)
                    if known is None or (series.count, -number) > (known[1].count, -known[0]):
                        self._found[name] = number, series
        return self._found

    @property
    def series_names(self) -> list[str]:
        return sorted(self._fullest.keys() - {"step", "progress"})

    def step_of(self, source: int) -> float | None:
        """The last step that this source tells of."""
        stream = self.streams.get(source)
        steps = stream.named.get("step") if stream is not None else None
        return steps.last if steps is not None and steps.count else None

    @property
    def last_step(self) -> float | None:
        steps = [named["step"].last for stream in self.streams.values() if "step" in (named := stream.named)]
        return max(steps, default=None)

    def progress(self, source: int) -> Progress:
        """How far a source came."""
        return self.stream(source).progress

    def lines_of(self, source: int) -> int:
        """How many lines a source has so far."""
        cursor = self.stream(source).cursor
        return cursor.line - 1 + cursor.content

    def course(self, source: int) -> Course:
        """How a source went on, up to now."""
        return self.stream(source).course

    def dropped_by_kind(self) -> dict[str, int]:
        """kind -> dropped lines, with blank lines."""
        kinds: Counter[str] = Counter(self.counts.dropped_before)
        for rule, lines in self.counts.dropped.items():
            kinds[self.matcher.rules[rule].kind or "?"] += lines
        if self.counts.blank:
            kinds["blank"] += self.counts.blank
        if self.counts.folded:
            kinds[FOLDED] += self.counts.folded
        return dict(kinds.most_common())

    def folds(self) -> list[Fold]:
        """What was folded, most first."""
        found = [
            Fold(number, *row)
            for number, stream in self.streams.items()
            if stream.folds is not None and self.folding is not None and self.folding.drops
            for row in stream.folds.table()
        ]
        return sorted(found, key=lambda fold: -fold.folded)

    def runs(self, source: int) -> list[int]:
        """The lines where the first lines of a source come again, as far as folds saw: the latest runs behind the first one."""
        folds = self.stream(source).folds
        return folds.runs()[1] if folds is not None else []

    def begins(self, source: int) -> tuple[int, list[Begin]]:
        """(how often a source says behind a failure what it said before, where it does so: the latest of them)."""
        starts = self.stream(source).starts
        return starts.all() if starts is not None else (0, [])

    def run_count(self, source: int) -> int:
        """How many runs there are behind the first one; ``runs`` only has the latest."""
        folds = self.stream(source).folds
        return folds.runs()[0] if folds is not None else 0

    def dropped_by_rule(self) -> dict[str, int]:
        """rule -> dropped lines."""
        return {self.matcher.rules[rule].id: lines for rule, lines in self.counts.dropped.most_common()}

    def stream(self, source: int) -> Stream:
        """A source, while it is read."""
        stream = self.streams.get(source)
        if stream is None:
            stream = self.streams[source] = Stream(source, self.folding)
        return stream

    def _add(self, stream: Stream, block: Block) -> Scan:
        before = stream.cursor
        return self.take(stream, block, before, self.matcher.scan(block, before))

    def take(self, stream: Stream, block: Block, before: Cursor, scan: Scan) -> Scan:
        """Keep, fold and count what the scan of the next block found. It began at ``before``."""
        self._changes(stream)
        notable: set[tuple[int, int, int]] = set()
        for name, column in scan.numbers.items():
            watch = stream.watches.get(name)
            if watch is not None:
                for index in watch.notable(column, _stand_out):
                    notable.add((column.starts[index], column.ends[index], column.lines[index]))
            if name not in stream.series:
                stream.series[name] = Series(self._room(self._telling(name)))
            stream.series[name].extend(column, _summarise, _bucketise)
            if name == "step" or (name == "loss" and "step" not in scan.numbers):
                stream.progress.see(block.data, column)
        if notable:
            self._keep_notable(scan, block, before, sorted(notable))
        if facts := _facts_among(self.matcher.rules, scan):
            told = set_aside(scan, block, before, facts, max(0, MOST - len(self.facts)))
            self.facts += [(stream.number, words) for words in told]
        stream.cursor = scan.cursor
        runs = stream.starts.see(block, before, scan, self.matcher.failures) if stream.starts is not None else []
        if stream.folds is not None and self.folding is not None:
            *sifted, numbers = stream.folds.sift(
                scan.text,
                scan.kept,
                scan.cursor.line,
                self.folding.sounds,
                stream.numbers.plan,
                array("Q", runs).tobytes(),
            )
            if self.folding.drops:
                _fold(scan, *sifted)
            self._find(stream, block, numbers)
        return self._count(stream, scan)

    def _last_folded(self, stream: Stream) -> Scan | None:
        """When a source ends, keep the last line that was folded: it shows how far the source got."""
        if stream.folds is None or self.folding is None or not self.folding.drops:
            return None
        scan = Scan(stream.cursor)
        _fold(scan, *stream.folds.close(self.folding.sounds, stream.numbers.plan)[:3])
        return self._count(stream, scan) if scan.kept else None

    def _count(self, stream: Stream, scan: Scan) -> Scan:
        counts = self.counts
        counts.lines_in += scan.lines
        counts.blank += scan.blank
        counts.lines_kept += scan.lines_kept
        counts.bytes_kept += scan.bytes_kept
        counts.folded += scan.folded
        for rule, lines in scan.dropped:
            counts.dropped[rule] += lines
        self.kept.add(stream.number, scan)
        return scan

    def _telling(self, name: str) -> int:
        """How many sources tell ``name``; if they are many, only that."""
        return _up_to_many(name in stream.series for stream in self.streams.values())

    def _finding(self, but: Stream | None = None) -> int:
        """How many sources have numbers that no rule knows; if they are many, only that."""
        return _up_to_many(bool(stream.found) for stream in self.streams.values() if stream is not but)

    @staticmethod
    def _room(others: int) -> int:
        """The points of a series that ``others`` sources have, too."""
        return next(room for most, room in _ROOM if others < most)

    def _find(self, stream: Stream, block: Block, numbers: list[tuple[Any, ...]]) -> None:
        """The numbers that stood in lines which no rule knows go into their series."""
        progress: dict[str, Column] = {}
        for number, _, *columns in numbers:
            column = Column.of_bytes(*columns)
            if number not in stream.found:
                stream.found[number] = Series(self._room(self._finding(stream)))
            stream.found[number].extend(column, _summarise, _bucketise)
            progress[stream.numbers.keys[number].quantity] = column
        if (sign := progress.get("step", progress.get("loss"))) is not None:
            stream.progress.see(block.data, sign)

    def _keep_notable(self, scan: Scan, block: Block, before: Cursor, places: list[tuple[int, int, int]]) -> None:
        """Move metric segments from the dropped to the kept: in the text, the records and the counts."""
        words = memoryview(scan.kept)
        already = set(words.cast("Q")[:: KEPT.size // 8].tolist())
        starts = words.cast("I")[_START_AT :: KEPT.size // 4].tolist()
        if before.kept:
            already.add(before.line)
        dropped = Counter(dict(scan.dropped))
        data = bytes(block.data)
        text = bytearray(scan.text)
        records: list[bytes] = []
        done = 0
        for start, end, line in places:
            segment = clean(data[start:end][:LONGEST])
            at = bisect_right(starts, start) * KEPT.size  # both are in the order of the block
            records += scan.kept[done:at], KEPT.pack(line, len(text), len(segment), NOTABLE, 0, start, end)
            done = at
            text += segment + b"\n"
            scan.bytes_kept += len(segment) + 1
            if line in already:
                continue
            already.add(line)
            if line == scan.cursor.line and scan.cursor.content:
                scan.cursor = scan.cursor._replace(kept=True)  # its line has not ended: it will then count as kept
            else:
                dropped[self._counted_under(data, end)] -= 1
                scan.lines_kept += 1
        scan.kept = b"".join((*records, scan.kept[done:]))
        scan.text = bytes(text)
        scan.dropped = sorted((+dropped).items())

    def _counted_under(self, data: bytes, end: int) -> int:
        """The rule that the line around ``end`` was counted for."""
        stop = data.index(b"\n", end)
        line = data[data.rfind(b"\n", 0, stop) + 1 : stop + 1]
        return self.matcher.scan(Block(line), Cursor()).dropped[0][0]


def _up_to_many(told: Iterable[bool]) -> int:
    """How often True is told, up to ``_MANY``: each new source asks this, and there may be thousands."""
    return sum(islice((1 for one in told if one), _MANY))


def _fold(scan: Scan, text: bytes, kept: bytes, folded: int) -> None:
    """``scan`` with the lines that are left after folding."""
    before = len(scan.text)
    if kept != scan.kept:
        scan.unfolded = scan.text, scan.kept
        scan.text, scan.kept = text, kept
    scan.folded = folded
    scan.lines_kept -= scan.folded
    scan.bytes_kept += len(scan.text) - before


def _facts_among(rules: Sequence[Rule], scan: Scan) -> bytes:
    """For each rule that kept something whether its lines say who is who; empty if none is such a rule."""
    kept = set(memoryview(scan.kept).cast("i")[_RULE_AT :: KEPT.size // 4].tolist())
    found = [rule for rule in kept if rule >= 0 and rules[rule].facts]
    flags = bytearray(max(found, default=-1) + 1)
    for rule in found:
        flags[rule] = 1
    return bytes(flags)


def points(series: Series) -> list[list[float | None]]:
    """[step, mean, least, most] of each bucket; None if there is no number."""
    step, finite, total, least, most = (series.column(name) for name in ("step", "finite", "total", "least", "most"))
    if all(finite) and not any(map(math.isnan, step)):  # nothing to leave out: the quick way
        return list(map(list, zip(step, map(truediv, total, finite), least, most, strict=True)))
    result: list[list[float | None]] = []
    for at, count, sum_, low, high in zip(step, finite, total, least, most, strict=True):
        where = at if at == at else None
        result.append([where, sum_ / count, low, high] if count else [where, None, None, None])
    return result
