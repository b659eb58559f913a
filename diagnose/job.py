"""The path for one job, top to bottom: read this first.

bytes -> lines -> compressed lines -> diagnosis -> advice. That is what one log says; ``decision.decide`` takes the
report, looks back on what happened before and elsewhere, and decides. Acting is the service's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from diagnose.compression.kept_log import Compression, points
from diagnose.compression.workload import FIRST, HEAD, Fingerprint, fingerprint
from diagnose.decision.policy_file import shipped_policy
from diagnose.diagnosis import wording
from diagnose.diagnosis.evidence import Event, Evidence, gather, normal
from diagnose.diagnosis.faults import Fault
from diagnose.diagnosis.root_cause import Finding, Many, Role, explain, unexplained
from diagnose.knowledge.rules import Rule
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.matching.series import Series
from diagnose.reading.sources import Source

if TYPE_CHECKING:
    from diagnose.compression.snapshot import StoredLine
    from diagnose.report import Diagnosis, EvidenceLine, MetricFigures, Report

_MOST_EVIDENCE = 20
_NEIGHBOURS, _NEAR_LINES = 2, 50


class Job:
    """One job: its sources, its compressed log, and what there is to say about it."""

    def __init__(self, job_id: str, sources: Sequence[Source], matcher: Matcher) -> None:
        self.id = job_id
        self.sources = list(sources)
        self.compression = Compression(matcher)
        self.known: set[str] = set()
        """lines of runs that went well: not the cause of anything"""
        self.metadata: dict[str, str] = {}
        """user, script, framework, image, arguments, as far as we were told"""
        self.failed = False
        """we were told that it failed, whatever its log says"""
        self.exit_code: int | None = None
        """what it ended with, as far as we were told"""
        self._fingerprint: Fingerprint | None = None
        self._first = b""

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the beginning of the job."""
        return self._fingerprint or fingerprint(self.compression, self.metadata, self._first)

    @fingerprint.setter
    def fingerprint(self, known: Fingerprint) -> None:
        self._fingerprint = known

    def learn(self, other: Job) -> None:
        """``other`` is a run of this kind that went well, or an attempt that went on: its lines are no news."""
        self.known.update(normal(event.body) for event in other.evidence().events)

    def feed(self, source: int, chunk: bytes) -> list[Scan]:
        """The next bytes of source number ``source``: bytes -> lines -> compressed lines."""
        if len(self._first) < FIRST:
            self._first += chunk[: FIRST - len(self._first)]
        scans = self.compression.feed(source, chunk)
        if self._fingerprint is None and self.compression.counts.bytes_in >= HEAD:
            self._fingerprint = fingerprint(self.compression, self.metadata, self._first)
        return scans

    def close(self, source: int) -> list[Scan]:
        """Source number ``source`` has ended."""
        return self.compression.close(source)

    def restart(self, source: int) -> list[Scan]:
        """Source number ``source`` begins anew at line 1: its file was rotated or truncated."""
        return self.compression.restart(source)

    def snapshot(self) -> bytes:
        """All that is needed to go on later, but for the kept lines: see ``diagnose.compression.snapshot``."""
        from diagnose.compression.snapshot import snapshot

        known = self._fingerprint
        beside = [known.metadata, known.sketch] if known is not None else None
        return snapshot(self.compression, beside, self._first if known is None else b"")

    def restore(self, snapshot: bytes, kept: Iterable[StoredLine]) -> None:
        """Go on where a snapshot was made: ``kept`` are the lines that had been kept by then."""
        from diagnose.compression.snapshot import beside_of, restored

        self.compression = restored(snapshot, self.compression.matcher, kept)
        beside, self._first = beside_of(snapshot)
        if beside is not None:
            metadata, sketch = beside
            self._fingerprint = Fingerprint(tuple((name, value) for name, value in metadata), tuple(sketch))

    def evidence(self) -> Evidence:
        """The kept lines that diagnosis reads."""
        return gather(self.compression.kept, self.compression.matcher.rules, self.sources)

    def report(self, *, running: bool = False) -> Report:
        """What is known by now: compressed lines -> diagnosis -> advice."""
        from diagnose import report as r  # pydantic takes a while to import: not before it is needed
        from diagnose.decision.advice import advise
        from diagnose.decision.checkpoints import saved

        evidence = self.evidence()
        finding = explain(evidence, self.compression, self.known, running=running)
        if not running and not finding.failed and (self.failed or self.exit_code):
            finding = unexplained(finding, self.exit_code)
        outcome: Literal["failed", "healthy", "running"] = "running" if running else "failed" if finding.failed else "healthy"
        counts = self.compression.counts
        checkpoints = saved(self.compression.facts, self.compression.matcher.rules)
        return r.Report(
            schema=r.SCHEMA,
            job=r.JobIdentity(
                id=self.id,
                sources=[source.name for source in self.sources],
                attempt=finding.attempt,
                fingerprint=str(self.fingerprint),
            ),
            outcome=outcome,
            diagnosis=self._diagnosis(finding, evidence, running=running),
            action=advise(finding, shipped_policy(), checkpoints),
            compression=r.CompressionFigures(
                lines_in=counts.lines_in,
                bytes_in=counts.bytes_in,
                lines_kept=counts.lines_kept,
                bytes_kept=counts.bytes_kept,
                ratio=counts.bytes_kept / counts.bytes_in if counts.bytes_in else None,
                dropped_by_kind=self.compression.dropped_by_kind(),
            ),
            metrics={name: self._metric(name) for name in self.compression.series_names},
            checkpoints=[r.SavedCheckpoint(step=one.step, path=one.path, complete=one.complete) for one in checkpoints],
            problems=[r.Problem(source=s.name, what=s.problem) for s in self.sources if s.problem],
        )

    def _diagnosis(self, finding: Finding, evidence: Evidence, *, running: bool) -> Diagnosis:
        from diagnose import report as r
        from diagnose.decision.advice import steps_of

        if finding.root is None:
            summary = "The job is running." if running else wording.summary(finding)
            return r.Diagnosis(
                category="unknown" if running or finding.failed else "none",
                reason="unknown" if running or finding.failed else "healthy",
                confidence=0.0 if running else finding.confidence,
                summary=summary,
                recovered=[self._many(many, "context") for many in finding.recovered[:_MOST_EVIDENCE]],
                notes=finding.notes,
                lines_not_read=evidence.skipped,
            )
        root = self._line(finding.root, "root_cause")
        followed = [self._many(many, "consequence") for many in finding.consequences[:_MOST_EVIDENCE]]
        rule = finding.root.rule
        affected = steps_of(finding.root.detector)
        return r.Diagnosis(
            category=shipped_taxonomy().category_of[finding.reason],
            reason=finding.reason,
            confidence=finding.confidence,
            by=finding.by,
            rule=rule.name if rule else None,
            root_cause=root,
            evidence=[root, *followed, *self._neighbours(finding.root.event, evidence)],
            suspects=r.Suspects(nodes=finding.nodes, ranks=finding.ranks, gpus=finding.gpus),
            summary=wording.summary(finding),
            mitigation=rule.mitigation if rule else None,
            group=finding.group,
            phase=finding.phase,
            step=finding.step,
            affected=r.Steps(first=affected[0], last=affected[1]) if affected else None,
            others=[
                r.Failure(
                    category=shipped_taxonomy().category_of[many.first.reason],
                    reason=many.first.reason,
                    line=self._many(many, "context"),
                )
                for many in finding.others[:_MOST_EVIDENCE]
            ],
            recovered=[self._many(many, "context") for many in finding.recovered[:_MOST_EVIDENCE]],
            notes=finding.notes,
            lines_not_read=evidence.skipped,
        )

    def _line(self, fault: Fault, role: Role) -> EvidenceLine:
        own = fault.traceback.own_frame if fault.traceback else None
        frame = f"{own.path}:{own.line} in {own.function}" if own else None
        line = self._evidence_line(fault.event, role, fault.rule)
        return line.model_copy(update={"frame": frame, "title": wording.title(fault)})

    def _many(self, many: Many, role: Role) -> EvidenceLine:
        line = self._line(many.first, role)
        return line.model_copy(update={"count": many.count, "ranks": many.ranks, "later_s": many.later_s})

    def _neighbours(self, event: Event, evidence: Evidence) -> list[EvidenceLine]:
        """The kept lines around the root cause."""
        near = [
            other
            for other in evidence.events
            if other.source == event.source
            and other is not event
            and abs(other.order - event.order) <= _NEIGHBOURS
            and abs(other.line - event.line) <= _NEAR_LINES
        ]
        return [self._evidence_line(other, "context", evidence.rule(other)) for other in near]

    def _evidence_line(self, event: Event, role: Role, rule: Rule | None) -> EvidenceLine:
        """An event as the report shows it."""
        from diagnose import report as r

        named = self.sources[event.source].origin
        return r.EvidenceLine(
            source=self.sources[event.source].name,
            line=event.line,
            text=f"{event.text} […{event.cut:,} bytes cut]" if event.cut else event.text,
            role=role,
            rank=event.rank if event.rank is not None else named.rank,
            node=event.node or named.node,
            time=event.time,
            rule=rule.name if rule else None,
        )

    def _metric(self, name: str) -> MetricFigures:
        from diagnose import report as r

        found = self.compression.series(name)
        assert found is not None
        source, series = found
        # All of them are ours: to have thousands of points checked takes longer than the diagnosis.
        return r.MetricFigures.model_construct(
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


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _step_of(series: Series, step: float) -> float | None:
    return _number(step) if series.count > series.not_finite else None
