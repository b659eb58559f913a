"""The path for one job, top to bottom: read this first.

bytes -> lines -> compressed lines -> diagnosis -> decision -> action. So far the path ends at the compressed lines; what
stands behind them is in the report as unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from diagnose.compression import Compression, KeptLine, points
from diagnose.matcher import Matcher
from diagnose.metrics import Series
from diagnose.prefixes import origin
from diagnose.scan import Scan
from diagnose.sources import Source

if TYPE_CHECKING:
    from diagnose.report import EvidenceLine, MetricFigures, Report

_MOST_EVIDENCE = 20


class Job:
    """One job: its sources, its compressed log, and what there is to say about it."""

    def __init__(self, job_id: str, sources: Sequence[Source], matcher: Matcher) -> None:
        self.id = job_id
        self.sources = list(sources)
        self.compression = Compression(matcher)

    def feed(self, source: int, chunk: bytes) -> list[Scan]:
        """The next bytes of source number ``source``: bytes -> lines -> compressed lines."""
        return self.compression.feed(source, chunk)

    def close(self, source: int) -> list[Scan]:
        """Source number ``source`` has ended."""
        return self.compression.close(source)

    def restart(self, source: int) -> list[Scan]:
        """Source number ``source`` begins anew at line 1: its file was rotated or truncated."""
        return self.compression.restart(source)

    def report(self, *, running: bool = False) -> Report:
        """What is known by now."""
        from diagnose import report as r  # pydantic takes a while to import: not before it is needed

        evidence = self._evidence()
        failed = bool(evidence)
        outcome: Literal["failed", "healthy", "running"] = "running" if running else "failed" if failed else "healthy"
        if failed:
            diagnosis = r.Diagnosis(
                evidence=evidence,
                summary="The log holds failure evidence; which of it is the root cause is not decided yet.",
                mitigation="Read the evidence from the top: causes stand before symptoms, hardware before software.",
            )
        elif running:
            diagnosis = r.Diagnosis(summary="The job is running.")
        else:
            diagnosis = r.Diagnosis(
                category="none", reason="healthy", confidence=0.5, summary="No line of the log is failure evidence."
            )
        counts = self.compression.counts
        return r.Report(
            schema=r.SCHEMA,
            job=r.JobIdentity(id=self.id, sources=[source.name for source in self.sources]),
            outcome=outcome,
            diagnosis=diagnosis,
            compression=r.CompressionFigures(
                lines_in=counts.lines_in,
                bytes_in=counts.bytes_in,
                lines_kept=counts.lines_kept,
                bytes_kept=counts.bytes_kept,
                ratio=counts.bytes_kept / counts.bytes_in if counts.bytes_in else None,
                dropped_by_kind=self.compression.dropped_by_kind(),
            ),
            metrics={name: self._metric(name) for name in self.compression.series_names},
            problems=[r.Problem(source=s.name, what=s.problem) for s in self.sources if s.problem],
        )

    def evidence_line(self, kept: KeptLine) -> EvidenceLine:
        """A kept line as the report shows it."""
        from diagnose import report as r

        who, named = origin(kept.text), self.sources[kept.source].origin
        rule = self.compression.matcher.rules[kept.rule].name if kept.rule >= 0 else None
        return r.EvidenceLine(
            source=self.sources[kept.source].name,
            line=kept.line,
            text=text_of(kept),
            rank=who.rank if who.rank is not None else named.rank,
            node=who.node or named.node,
            time=who.time,
            rule=rule,
        )

    def _evidence(self) -> list[EvidenceLine]:
        """The first line of each failure rule of some weight: causes before symptoms, the graver and the lower first."""
        rules = self.compression.matcher.rules
        first: dict[int, KeptLine] = {}
        counts: Counter[int] = Counter()
        for kept in self.compression.kept:
            if kept.rule >= 0 and rules[kept.rule].severity != "warning":
                first.setdefault(kept.rule, kept)
                counts[kept.rule] += 1
        # A rule's number already counts from the metal up.
        order = sorted(first, key=lambda number: (rules[number].symptom, rules[number].severity != "fatal", number))
        return [
            self.evidence_line(first[number]).model_copy(update={"count": counts[number]}) for number in order[:_MOST_EVIDENCE]
        ]

    def _metric(self, name: str) -> MetricFigures:
        from diagnose import report as r

        found = self.compression.series(name)
        assert found is not None
        source, series = found
        return r.MetricFigures(
            count=series.count,
            first=_number(series.first),
            last=_number(series.last),
            at_step=_number(series.last_step),
            min=_number(series.least),
            min_at_step=_step_of(series, series.least_step),
            max=_number(series.most),
            max_at_step=_step_of(series, series.most_step),
            not_finite=series.not_finite,
            source=self.sources[source].name,
            points=points(series),
        )


def text_of(kept: KeptLine) -> str:
    """The text of a kept line, with a mark where it was cut."""
    text = kept.text.decode("utf-8", "replace")
    return f"{text} […{kept.cut:,} bytes cut]" if kept.cut else text


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _step_of(series: Series, step: float) -> float | None:
    return _number(step) if series.count > series.not_finite else None
