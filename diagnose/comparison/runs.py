"""A job that was read -> what can be compared of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from diagnose.comparison.settings import MOST_BYTES, Settings
from diagnose.diagnosis.evidence import normal
from diagnose.reading.prefixes import body_start

if TYPE_CHECKING:
    from diagnose.job import Job
    from diagnose.report import MetricFigures, Report

_MOST_SHAPES = 50_000
_HEAD = 2000


class Line(NamedTuple):
    """The first line of a shape."""

    source: str
    line: int
    text: str
    title: str | None
    """what a failure rule says of it"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    report: Report
    versions: dict[str, str]
    settings: dict[str, str]
    lines: dict[str, Line] = field(repr=False)
    """shape -> the first kept line that has it"""
    regular: dict[str, tuple[int, str]] = field(repr=False)
    """rule -> (lines that it dropped, what it is about)"""

    @property
    def metrics(self) -> dict[str, MetricFigures]:
        return self.report.metrics


def run_of(job: Job) -> Run:
    """``job`` was read to its end. Its files are opened once more, for what they say in their beginning."""
    told = Settings()
    for source in job.sources:
        if source.path is not None:
            told.read(_beginning(type(source)(source.name, source.path).chunks()))
    rules = {rule.id: rule for rule in job.compression.matcher.rules}
    dropped = job.compression.dropped_by_rule()
    return Run(
        job.report(),
        told.versions,
        told.settings,
        _lines(job),
        {name: (lines, rules[name].title or rules[name].kind or "") for name, lines in dropped.items()},
    )


def run_of_kept(report: Report, lines: Iterable[tuple[str, int, str, str | None]], titles: Mapping[str, str]) -> Run:
    """A run of which only the report and the kept lines are there: (source, line, text, rule). What was dropped as regular is
    not known line by line, so nothing is said of it.
    """
    told, found = Settings(), dict[str, Line]()
    for source, number, text, rule in lines:
        raw = text[:_HEAD].encode("utf-8", "replace")
        told.read([raw])
        shape = normal(raw[body_start(raw) :].decode("utf-8", "replace"))
        if shape and shape not in found and len(found) < _MOST_SHAPES:
            found[shape] = Line(source, number, text[:_HEAD], titles.get(rule or ""))
    return Run(report, told.versions, told.settings, found, {})


def _beginning(chunks: Iterator[bytes]) -> list[bytes]:
    data = b"".join(islice(chunks, 1 + (MOST_BYTES >> 20)))[:MOST_BYTES]
    return data.replace(b"\r", b"\n").split(b"\n")


def _lines(job: Job) -> dict[str, Line]:
    rules = job.compression.matcher.rules
    found: dict[str, Line] = {}
    for kept in job.compression.kept:
        text = kept.text[:_HEAD]
        shape = normal(text[body_start(text) :].decode("utf-8", "replace"))
        if shape and shape not in found and len(found) < _MOST_SHAPES:
            title = rules[kept.rule].title if kept.rule >= 0 else None
            found[shape] = Line(job.sources[kept.source].name, kept.line, text.decode("utf-8", "replace"), title or None)
    return found
