"""What the scheduler says of an attempt: whose job it is, where it ran, and which nodes its log may speak against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from diagnose.decision.ending import Ending
from diagnose.decision.history import History
from diagnose.decision.result import Decision
from diagnose.decision.signals import accuses
from diagnose.report import Report
from service.acting.executors.claim import Claim, Confirmed, Unconfirmed
from service.acting.executors.executor import Order
from service.projects import kernel_of, parted
from service.store import confirmations


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one attempt besides its log. A field is empty if nobody was asked."""

    names: tuple[str, ...] | None = None
    """names of all nodes"""
    unconfirmed: str | None = None
    owner: str | None = None
    subject: str | None = None
    nodes: tuple[str, ...] = ()
    believed: tuple[str, ...] | None = None
    """nodes that the log may speak against"""
    ending: Ending | None = None

    def applied(self, past: History) -> History:
        """The history, with the scheduler's words in place of the log's."""
        return replace(
            past,
            nodes=self.nodes or past.nodes,
            unconfirmed=self.unconfirmed,
            believed=self.believed,
            owner=self.owner,
            subject=self.subject,
            user=self.owner or past.user,
            ending=self.ending or past.ending,
        )

    def keep(self, connection: Connection, attempt_id: int, now: float) -> None:
        """Store it for later decisions: the accusations of an unconfirmed log do not count."""
        confirmations.keep(
            connection,
            attempt_id,
            now,
            why=self.unconfirmed,
            owner=self.owner,
            subject=self.subject,
            nodes=self.nodes,
            accused=[node for node in self.believed or () if self.unconfirmed is None and node in self.nodes],
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be confirmed of an attempt."""

    job: str
    attempt: int
    labels: dict[str, str]
    claim: Claim
    project: str
    suspects: tuple[str, ...]
    """nodes that its diagnosis speaks against"""
    source: str | None
    """the source of its root cause"""
    last_seen: float | None
    ending: Ending | None = None
    """how it ended, as its sender says"""

    def order(self, decision: Decision) -> Order:
        """The order as it would be given."""
        kind = decision.order if decision.acts else "restart"
        nodes = tuple(decision.action.nodes)
        return Order("", kind, self.job, self.attempt, self.labels, nodes, claim=self.claim, last_seen=self.last_seen)

    def standing(self, answer: Confirmed | Unconfirmed, names: tuple[str, ...] | None) -> Standing:
        believed = tuple(node for node in self.suspects if self._may_accuse(node))
        if isinstance(answer, Unconfirmed):
            return Standing(names, answer.why, believed=believed)
        owner = f"{self.project}/{answer.owner}" if answer.owner else self.project
        ending = answer.ending
        if ending is not None:
            believed = tuple(dict.fromkeys((*believed, *ending.nodes)))  # the scheduler's own word
        # If a job went on since, and nobody knows where it ran before, its log speaks against no node.
        return Standing(names, None, owner, answer.subject, answer.nodes, believed if answer.nodes else (), ending)

    def _may_accuse(self, node: str) -> bool:
        return self.claim.may_accuse(node) or (self.source is not None and kernel_of(self.source) == node)


def asked_of(connection: Connection, attempt_id: int, report: Report, past: History) -> Asked:
    """What is to be asked about an attempt."""
    diagnosis = report.diagnosis
    named: Sequence[str] = diagnosis.suspects.nodes if accuses(diagnosis.reason) else ()
    project, name = parted(report.job.id)
    return Asked(
        name,
        report.job.attempt,
        dict(past.labels),
        Claim.of(confirmations.claim_of(connection, attempt_id)),
        project,
        tuple(dict.fromkeys(named)),
        diagnosis.root_cause.source if diagnosis.root_cause is not None else None,
        past.ended,
        past.ending,
    )
