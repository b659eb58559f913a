"""What one transaction stores of one attempt of a running job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diagnose.decision.lost import Ran
from diagnose.report import Report
from service.store.tasks import Wanted


class SourceState(NamedTuple):
    """How far a source is stored."""

    number: int
    name: str
    rank: int | None
    node: str | None
    received: int
    head: bytes
    keys: bytes
    last_seen: float
    missing: Sequence[tuple[int, int]] = ()
    """bytes that were accepted and then damaged on disk: (from, to)"""
    step: float | None = None
    """the last step that it tells of"""


class KeptRow(NamedTuple):
    """A kept line on its way into the table."""

    ord: int
    source: int
    line: int
    text: str
    raw: bytes | None
    rule: str | None
    cut: int
    rank: int | None
    node: str | None


@dataclass(slots=True)
class JudgedReport:
    """A report, with what only the service knows of the attempt, to be stored."""

    report: Report
    final: bool
    made_at: float
    ran: Ran | None = None
    """None: what a failure cost is stored already, or nobody knows how many GPUs it had"""
    tasks: tuple[Wanted, ...] = ()
    """questions for the agent"""
    improves: bool = False
    """it is the agent's version of the stored one"""
    as_stored: frozenset[str] = frozenset()
    """the job's numbers that have not changed since they were stored"""

    @property
    def gpu_seconds(self) -> float:
        """All GPU time of the attempt."""
        return self.ran.ran_s * self.ran.gpus if self.ran is not None else 0.0


@dataclass(slots=True)
class Flush:
    """What one transaction stores of one attempt."""

    job_id: int
    attempt_id: int
    number: int
    lsn: int
    snapshot: bytes
    rows: list[KeptRow]
    figures: dict[str, Any]
    """columns of the attempt: counts, live state, the end"""
    sources: list[SourceState]
    labels: dict[str, str] | None = None
    judged: JudgedReport | None = None
    anew: bool = False
    """what was stored of this attempt could not be used"""
    judged_lsn: int = -1
    """the last record that ``judged`` takes into account"""
    weight: int = 0
    """about how many bytes of memory it takes"""
    new_lines: int = 0
    """lines that were read since the flush before"""
    group_id: int | None = None
    """set when it is stored, like the two below"""
    regressed: bool = False
    alarm: str | None = None
    """raised, over"""
