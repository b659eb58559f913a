"""Finding -> report, as the outside sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from diagnose.compression.kept_log import Compression, points
from diagnose.diagnosis import wording
from diagnose.diagnosis.detectors.course import steps_of
from diagnose.diagnosis.evidence import Event, Evidence
from diagnose.diagnosis.finding import Finding, Many, Role
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.stacks import StackGroup
from diagnose.knowledge.rules import Rule
from diagnose.matching.series import Series

if TYPE_CHECKING:
    from diagnose.report import (
        Action,
        Alternative,
        Diagnosis,
        Dumps,
        EvidenceLine,
        JobIdentity,
        MetricFigures,
        Report,
        SavedCheckpoint,
    )
    from diagnose.report import StackGroup as ReportedGroup

_MOST_EVIDENCE = 20
_MOST_GROUPS = 50
_MOST_RANKS = 4096
_MOST_FOLDS = 50
_NEIGHBOURS, _NEAR_LINES = 2, 50


def report_of(
    job: JobIdentity,
    finding: Finding,
    action: Action,
    checkpoints: Sequence[SavedCheckpoint],
    evidence: Evidence,
    log: Compression,
    *,
    running: bool,
) -> Report:
    """The report on a job: its diagnosis, the usual action, and its figures."""
    return _Reporting(evidence, log).report(job, finding, action, checkpoints, running=running)


class _Reporting:
    def __init__(self, evidence: Evidence, log: Compression) -> None:
        self.evidence, self.log, self.sources = evidence, log, evidence.sources

    def report(
        self, job: JobIdentity, finding: Finding, action: Action, checkpoints: Sequence[SavedCheckpoint], *, running: bool
    ) -> Report:
        from diagnose import report as r  # pydantic takes a while to import, so it waits until it is needed

        outcome: Literal["failed", "healthy", "running"] = "running" if running else "failed" if finding.failed else "healthy"
        counts = self.log.counts
        return r.Report(
            schema=r.SCHEMA,
            job=job,
            outcome=outcome,
            diagnosis=self._diagnosis(finding, action, running=running),
            action=action,
            compression=r.CompressionFigures(
                lines_in=counts.lines_in,
                bytes_in=counts.bytes_in,
                lines_kept=counts.lines_kept,
                bytes_kept=counts.bytes_kept,
                ratio=counts.bytes_kept / counts.bytes_in if counts.bytes_in else None,
                dropped_by_kind=self.log.dropped_by_kind(),
                folds=[
                    r.FoldFigures(
                        source=self.sources[fold.source].name,
                        first_line=fold.first,
                        last_line=fold.last,
                        lines=fold.lines,
                        folded=fold.folded,
                    )
                    for fold in self.log.folds()[:_MOST_FOLDS]
                ],
            ),
            metrics={name: self._metric(name) for name in self.log.series_names},
            checkpoints=list(checkpoints),
            problems=[r.Problem(source=s.name, what=s.problem) for s in self.sources if s.problem],
        )

    def _diagnosis(self, finding: Finding, action: Action, *, running: bool) -> Diagnosis:
        from diagnose import report as r

        if finding.root is None:
            summary = "The job is running." if running else wording.summary(finding)
            return r.Diagnosis(
                category="unknown" if running or finding.failed else "none",
                reason="unknown" if running or finding.failed else "healthy",
                confidence=0.0 if running else finding.confidence,
                summary=summary,
                mitigation=wording.what_to_do(finding),
                recovered=[self._many(many, "context") for many in finding.recovered[:_MOST_EVIDENCE]],
                alternatives=[] if running else self._alternatives(finding),
                doubt=[] if running else finding.doubt,
                dumps=self._dumps(finding),
                notes=finding.notes,
                lines_not_read=self.evidence.skipped,
            )
        root = self._line(finding.root, "root_cause") if finding.root.event.line else None  # else the log has no line
        followed = [self._many(many, "consequence") for many in finding.consequences[:_MOST_EVIDENCE]]
        rule = finding.root.rule
        affected = steps_of(finding.root.detector)
        return r.Diagnosis(
            category=finding.category,
            reason=finding.reason,
            confidence=finding.confidence,
            by=finding.by,
            rule=rule.name if rule else None,
            root_cause=root,
            evidence=[*([root] if root is not None else []), *followed, *self._neighbours(finding.root.event)],
            suspects=r.Suspects(nodes=finding.nodes, ranks=finding.ranks, gpus=finding.gpus),
            culprits=list(action.nodes),
            witnesses=r.Witnesses(nodes=finding.witness_nodes, ranks=finding.witness_ranks),
            summary=wording.summary(finding),
            mitigation=rule.mitigation if rule else wording.what_to_do(finding),
            group=finding.group,
            phase=finding.phase,
            step=finding.step,
            affected=r.Steps(first=affected[0], last=affected[1]) if affected else None,
            others=[
                r.Failure(
                    category=many.first.category,
                    reason=many.first.reason,
                    line=self._many(many, "context"),
                )
                for many in finding.others[:_MOST_EVIDENCE]
            ],
            recovered=[self._many(many, "context") for many in finding.recovered[:_MOST_EVIDENCE]],
            alternatives=self._alternatives(finding),
            doubt=finding.doubt,
            dumps=self._dumps(finding),
            notes=finding.notes,
            lines_not_read=self.evidence.skipped,
        )

    def _dumps(self, finding: Finding) -> Dumps | None:
        from diagnose import report as r

        seen = finding.picture
        if seen is None:
            return None
        return r.Dumps(
            summary=f"{seen.sentence}.",
            stacks=[self._stacks(group) for group in seen.groups[:_MOST_GROUPS]],
            collectives=[
                r.StandingCollective(
                    group=one.group,
                    description=one.description or None,
                    number=one.number,
                    op=one.op,
                    sizes=one.sizes,
                    members=len(one.members),
                    waiting=one.waiting,
                    late=one.late,
                    behind=one.behind,
                    no_dump=one.unseen[:_MOST_RANKS],
                    differing=one.differing,
                )
                for one in seen.standing[:_MOST_GROUPS]
            ],
        )

    def _stacks(self, group: StackGroup) -> ReportedGroup:
        from diagnose import report as r

        return r.StackGroup(
            count=len(group.processes),
            ranks=group.ranks,
            processes=[one.name for one in group.processes if one.rank is None][:_MOST_EVIDENCE],
            place=group.place.kind.name,
            waits=group.place.kind.waits,
            where=group.place.where,
            frames=group.frames,
            tool=group.first.dump.tool,
            source=self.sources[group.first.source].name,
            line=group.first.line,
        )

    def _alternatives(self, finding: Finding) -> list[Alternative]:
        from diagnose import report as r

        return [
            r.Alternative(
                category=one.category,
                reason=one.reason,
                confidence=one.confidence,
                line=self._line(one.best, "context") if one.best is not None else None,
            )
            for one in finding.alternatives
        ]

    def _line(self, fault: Hypothesis, role: Role) -> EvidenceLine:
        own = fault.traceback.own_frame if fault.traceback else None
        frame = f"{own.path}:{own.line} in {own.function}" if own else None
        line = self._evidence_line(fault.event, role, fault.rule)
        return line.model_copy(update={"frame": frame, "title": wording.title(fault)})

    def _many(self, many: Many, role: Role) -> EvidenceLine:
        line = self._line(many.first, role)
        return line.model_copy(update={"count": many.count, "ranks": many.ranks, "later_s": many.later_s})

    def _neighbours(self, event: Event) -> list[EvidenceLine]:
        """The kept lines around the root cause."""
        near = [
            other
            for other in self.evidence.events
            if other.source == event.source
            and other is not event
            and abs(other.order - event.order) <= _NEIGHBOURS
            and abs(other.line - event.line) <= _NEAR_LINES
        ]
        return [self._evidence_line(other, "context", self.evidence.rule(other)) for other in near]

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

        found = self.log.series(name)
        assert found is not None
        source, series = found
        # We made them all: to validate thousands of points would take longer than the diagnosis.
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
