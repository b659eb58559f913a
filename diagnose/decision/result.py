"""A decision, with its reasons, what held it back, and the evidence for the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from diagnose.decision.clauses import Mode
from diagnose.decision.policy import HOLD, ISOLATE, RELEASE
from diagnose.diagnosis.detectors.course import duration
from diagnose.report import Action

Tell = Literal["nobody", "owner", "operator"]
RESTARTS: Final = frozenset({"restart", "isolate_and_restart", "rollback_and_skip", "retry_later"})
"""actions after which the job runs again"""


@dataclass(frozen=True, slots=True)
class Step:
    """One question and its answer."""

    name: str
    said: str
    where: str = ""
    """file and line of the policy"""
    decided: bool = False
    """it chose the action, or changed it"""


@dataclass(frozen=True, slots=True)
class Limit:
    """What held the action back, and what would let it go."""

    name: str
    said: str
    change: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about one attempt of a job, or about a node."""

    job: str
    attempt: int
    group: str | None
    reason: str
    action: Action
    wanted: str
    """the action before anything held it back"""
    mode: Mode
    decided_by: str
    """the name of the step that chose the action"""
    reasons: tuple[Step, ...]
    limits: tuple[Limit, ...]
    key: str
    made_at: float
    job_class: str | None = None
    not_before: float | None = None
    avoid: tuple[str, ...] = ()
    """nodes to leave out of the restart, without isolating them"""
    isolate: tuple[str, ...] = ()
    """those of ``avoid`` whose isolation waits for a person, in an action of its own"""
    hold: bool = False
    """besides the advice, the job is held so that its controller does not start it again"""
    check: tuple[str, ...] = ()
    """nodes to test: the restart does not wait for those that it avoids"""
    check_first: tuple[str, ...] = ()
    """nodes that are tested together before the restart, which then avoids the faulty ones"""
    test: tuple[str, ...] = ()
    """those of ``check`` that are tested by orders of their own, since the job goes on without them"""
    test_mode: Mode = "observe"
    release: tuple[str, ...] = ()
    """nodes that were isolated because of a diagnosis that no longer holds"""
    supersedes: tuple[str, ...] = ()
    """keys of actions for the same attempt that nobody has taken yet"""
    tell: Tell = "nobody"
    """whom to wake or write to, whatever the mode"""
    incident: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """for the audit: everything that counted"""

    @property
    def changes(self) -> tuple[str, ...]:
        """What would change the decision, most effective first."""
        return tuple(dict.fromkeys(limit.change for limit in self.limits))

    @property
    def acts(self) -> bool:
        """Whether there is something for an executor to do."""
        return self.order in RESTARTS or self.order in (ISOLATE, RELEASE, HOLD)

    @property
    def order(self) -> str:
        """What an executor is to do. The action may be advice for people."""
        return HOLD if self.hold else self.action.kind

    def as_dict(self) -> dict[str, Any]:
        """The decision as JSON holds it."""
        return {
            "job": self.job,
            "attempt": self.attempt,
            "group": self.group,
            "reason": self.reason,
            "action": self.action.model_dump(mode="json"),
            "wanted": self.wanted,
            "mode": self.mode,
            "decided_by": self.decided_by,
            "reasons": [{"name": s.name, "said": s.said, "where": s.where, "decided": s.decided} for s in self.reasons],
            "limits": [{"name": li.name, "said": li.said, "change": li.change, "where": li.where} for li in self.limits],
            "changes": list(self.changes),
            "key": self.key,
            "made_at": self.made_at,
            "class": self.job_class,
            "not_before": self.not_before,
            "avoid": list(self.avoid),
            "isolate": list(self.isolate),
            "hold": self.hold,
            "check": list(self.check),
            "check_first": list(self.check_first),
            "test": list(self.test),
            "test_mode": self.test_mode,
            "release": list(self.release),
            "supersedes": list(self.supersedes),
            "tell": self.tell,
            "incident": self.incident,
            "evidence": dict(self.evidence),
        }


def span(seconds: float) -> str:
    """A span of time in words, for a sentence."""
    return duration(max(0.0, seconds))
