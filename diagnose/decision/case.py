"""A decision in the making: what is known about one attempt, and what the questions of ``decide`` have found so far."""

from __future__ import annotations

from typing import Any, Final

from diagnose.decision.action import key_of
from diagnose.decision.bursts import Incident
from diagnose.decision.clauses import MODES, Mode
from diagnose.decision.history import Cluster, History
from diagnose.decision.policy import HOLD, JobClass, Policy
from diagnose.decision.recurrence import attempts_of
from diagnose.decision.result import Decision, Limit, Step, Tell
from diagnose.decision.signals import Signal
from diagnose.report import Action, EvidenceLine, Report, RestartFrom

_TEXT: Final = 500
"""characters of a line that the evidence keeps"""
_LINES: Final = 10
"""lines besides that of the root cause"""


class Case:
    """A decision in the making."""

    def __init__(self, report: Report, history: History, cluster: Cluster | None, policy: Policy, now: float) -> None:
        self.report, self.history, self.cluster, self.policy, self.now = report, history, cluster, policy, now
        self.job, self.attempt, self.diagnosis = report.job.id, report.job.attempt, report.diagnosis
        self.job_class: JobClass | None = policy.class_of(history.name or self.job, history.labels, history.gpus)
        subject = history.subject or object()
        self.own = tuple(one for one in history.actions if one.job == self.job or one.subject == subject)
        """the actions on this job, under all its names; picked out of the cluster's once, so that each is looked at once"""
        self.attempts = attempts_of(self.attempt, report.diagnosis, history, self.own, now)
        self.kind, self.why, self.wanted = "none", "", "none"
        self.nodes: list[str] = []
        self.avoid: list[str] = []
        self.isolate: list[str] = []
        self.check: list[str] = []
        self.check_first: list[str] = []
        self.test: list[str] = []
        self.test_mode: Mode = "observe"
        self.restart_from: RestartFrom | None = None
        self.skip: tuple[int, int] | None = None
        self.not_before: float | None = None
        self.release: tuple[str, ...] = ()
        self.supersedes: tuple[str, ...] = ()
        self.incident: Incident | None = None
        self.signals: list[Signal] = []
        self.tell: Tell = "nobody"
        self.mode: Mode = "auto"
        self.steps: list[Step] = []
        self.limits: list[Limit] = []
        self.decided_by = "usual"
        self.holds = False
        """besides the advice, its controller is kept from starting it again"""
        self.rests_on_diagnosis = True
        """else how sure the diagnosis is does not matter for the action"""
        self.settled = False
        """nothing may be done about it any more"""

    def choose(self, name: str, kind: str, why: str, where: str = "", tell: Tell | None = None) -> None:
        """Set the action, and the sentence that says why."""
        self.kind, self.why, self.decided_by = kind, why, name
        self.steps.append(Step(name, why, where, decided=True))
        if tell is not None:
            self.tell = tell
        if kind != "isolate_and_restart":
            self.nodes = []
        if kind != "rollback_and_skip":
            self.restart_from = self.skip = None

    def note(self, name: str, said: str, where: str = "") -> None:
        self.steps.append(Step(name, said, where))

    def hold(self, name: str, said: str, change: str, where: str = "", at_most: Mode = "auto") -> None:
        """Note what holds the action back."""
        self.limits.append(Limit(name, said, change, where))
        self.mode = min(self.mode, at_most, key=MODES.index)

    def line(self, clause: str) -> str:
        return self.policy.line(clause)

    def decision(self) -> Decision:
        action = Action(kind=self.kind, nodes=self.nodes, restart_from=self.restart_from, skip_batches=self.skip, why=self.why)
        return Decision(
            job=self.job,
            attempt=self.attempt,
            group=self.diagnosis.group,
            reason=self.diagnosis.reason,
            action=action,
            wanted=self.wanted,
            mode=self.mode,
            decided_by=self.decided_by,
            reasons=tuple(self.steps),
            limits=tuple(self.limits),
            key=key_of(self.job, self.attempt, self.diagnosis.group, HOLD if self.holds else self.kind, self.nodes),
            made_at=self.now,
            job_class=self.job_class.name if self.job_class else None,
            not_before=self.not_before,
            avoid=tuple(self.avoid),
            isolate=tuple(self.isolate),
            hold=self.holds,
            check=tuple(self.check),
            check_first=tuple(self.check_first),
            test=tuple(self.test),
            test_mode=self.test_mode,
            release=self.release,
            supersedes=self.supersedes,
            tell=self.tell,
            incident=self.incident.key if self.incident else None,
            evidence=self.evidence(),
        )

    def _beside_the_root(self) -> list[EvidenceLine]:
        """The lines of evidence but the root line. One that follows from it may be its neighbour, too: it comes once."""
        root = self.diagnosis.root_cause
        seen = {(root.source, root.line)} if root is not None else set()
        found = []
        for line in self.diagnosis.evidence:
            if line.role != "root_cause" and (line.source, line.line) not in seen:
                seen.add((line.source, line.line))
                found.append(line)
        return found

    def evidence(self) -> dict[str, Any]:
        root = self.diagnosis.root_cause
        return {
            "diagnosis": {
                "reason": self.diagnosis.reason,
                "by": self.diagnosis.by,
                "rule": self.diagnosis.rule,
                "confidence": self.diagnosis.confidence,
                "suspects": list(self.diagnosis.suspects.nodes),
                "step": self.diagnosis.step,
                "phase": self.diagnosis.phase,
            },
            "root_cause": {"source": root.source, "line": root.line, "text": root.text[:_TEXT], "node": root.node}
            if root
            else None,
            "lines": [
                {"source": line.source, "line": line.line, "text": line.text[:_TEXT], "role": line.role}
                for line in self._beside_the_root()
            ][:_LINES],
            "signals": [{"node": s.node, "name": s.name, "points": s.points, "said": s.said} for s in self.signals],
            "attempts": [[a.number, a.reason, a.group, a.last_step] for a in self.attempts[-10:]],
            "isolated": sorted(self.cluster.isolated())[:100] if self.cluster else None,
            "nodes": self.cluster.count if self.cluster else None,
            "owner": self.history.owner,
            "subject": self.history.subject,
            "unconfirmed": self.history.unconfirmed,
            "incident": [self.incident.key, self.incident.jobs, self.incident.rounds] if self.incident else None,
        }
