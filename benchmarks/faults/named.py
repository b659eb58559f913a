"""A folder of logs -> whom the diagnosis suspects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.plan import Plan
from diagnose.job import Job
from diagnose.matching.matcher import Matcher
from diagnose.reading.sources import find


@dataclass(frozen=True, slots=True)
class Named:
    """What one report says of one job."""

    plan: Plan
    how: str
    reason: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    action: str

    @property
    def right(self) -> bool:
        return self.ranks == (self.plan.victim,)

    @property
    def innocent(self) -> bool:
        """Whether a rank that only followed, or a machine, is suspected."""
        return bool(set(self.ranks) - {self.plan.victim} or self.nodes)


def read(plan: Plan, how: str, folder: Path, matcher: Matcher) -> Named:
    found = find([str(folder)])
    if found.problems:
        raise found.problems[0]
    job = Job(str(plan), found.sources, matcher)
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    report = job.report()
    job.compression.kept.close()
    said = report.diagnosis
    nodes = {*said.suspects.nodes, *said.culprits, *report.action.nodes}
    return Named(plan, how, said.reason, tuple(said.suspects.ranks), tuple(sorted(nodes)), report.action.kind)
