"""The kept lines of a job for people: by source, with a mark where lines were left out or repeat each other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from diagnose.rendering.characters import printable

if TYPE_CHECKING:
    from diagnose.compression.kept_log import Compression
    from diagnose.report import EvidenceLine, FoldFigures, Report

_LONGEST = 2000
_FEWEST_ALIKE = 4
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Row:
    """A line, and what is not shown before it."""

    line: int
    text: str
    left_out: int
    """lines between it and the row before"""
    mark: str = ""
    """root, followed, or nothing"""
    repeats: str = ""
    """says that lines like it were folded"""


@dataclass(slots=True)
class Shown:
    """The lines of one source."""

    number: int
    name: str
    lines: int
    """number of lines in the source"""
    rows: list[Row] = field(default_factory=list)
    left_out: int = 0
    """lines after the last row"""

    @property
    def has_root(self) -> bool:
        return any(row.mark == "root" for row in self.rows)


def shown(report: Report, log: Compression, most: int) -> list[Shown]:
    """At most about ``most`` lines: those around the root cause, the evidence, and the last ones of each source."""
    marks = _marks(report)
    names = report.job.sources
    wanted = _wanted(log, marks, names, most)
    folds = {(fold.source, fold.first_line): fold for fold in report.compression.folds}
    sources = {number: Shown(number, name, log.lines_of(number)) for number, name in enumerate(names)}
    last: dict[int, int] = defaultdict(int)
    for _, kept in log.kept.chosen(lambda order, source, rule: order in wanted):
        name = names[kept.source]
        text = printable(kept.text[:_LONGEST].decode("utf-8", "replace"))
        more = max(0, len(kept.text) - _LONGEST) + kept.cut
        left_out = max(0, kept.line - last[kept.source] - 1)
        last[kept.source] = kept.line
        sources[kept.source].rows.append(
            Row(
                kept.line,
                f"{text} […{more:,} bytes more]" if more else text,
                left_out,
                marks.get((name, kept.line), ""),
                _repeats(folds.get((name, kept.line))),
            )
        )
    for number, source in sources.items():
        source.rows = list(_alike_folded(source.rows))
        source.left_out = max(0, source.lines - last[number])
    return [source for source in sources.values() if source.rows]


def _alike_folded(rows: list[Row]) -> Iterator[Row]:
    """Of neighbours that differ only in their numbers, such as one line per rank: the first and the last."""
    for _, group in groupby(rows, key=lambda row: (row.mark, row.mark == "root" or _DIGITS.sub("0", row.text), row.repeats)):
        alike = list(group)
        if len(alike) < _FEWEST_ALIKE:
            yield from alike
        else:
            yield replace(alike[0], repeats=f"{len(alike) - 2:,} more like it")
            yield replace(alike[-1], left_out=0)


def _marks(report: Report) -> dict[tuple[str, int], str]:
    """(source, line) -> its role in the diagnosis."""
    diagnosis = report.diagnosis
    named: list[EvidenceLine] = [item for item in diagnosis.evidence if item.role == "consequence"]
    marks = {(item.source, item.line): "followed" for item in named}
    if diagnosis.root_cause is not None:
        marks[diagnosis.root_cause.source, diagnosis.root_cause.line] = "root"
    return marks


def _wanted(log: Compression, marks: dict[tuple[str, int], str], names: list[str], most: int) -> frozenset[int] | range:
    """The places in the kept lines of those to show."""
    if log.kept.lines <= most:
        return range(log.kept.lines)
    by_source: dict[int, list[int]] = defaultdict(list)
    marked: list[tuple[int, int]] = []
    for order, (source, line, *_) in enumerate(log.kept.rows()):
        if (names[source], line) in marks:
            marked.append((source, len(by_source[source])))
        by_source[source].append(order)
    return frozenset(_around(by_source, marked, most))


def _around(by_source: dict[int, list[int]], marked: list[tuple[int, int]], most: int) -> Iterator[int]:
    share = max(3, most // 2 // len(by_source))
    for orders in by_source.values():
        yield from orders[-share:]
    reach = max(3, most // 4 // max(1, len(marked)))
    for source, at in marked:
        yield from by_source[source][max(0, at - reach) : at + reach + 1]


def _repeats(fold: FoldFigures | None) -> str:
    if fold is None:
        return ""
    return f"{fold.lines:,} lines like this up to line {fold.last_line:,}, of which {fold.folded:,} were folded"
