"""Why a piece of work failed, by the log that it left; and whether to try again, elsewhere, or not."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from diagnose.diagnosis.status import told_of
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.reading.sources import Source

_OURS = ("fix_code", "fix_config", "rollback_and_skip")
"""kinds of action that a person has to take: the same again ends the same way"""
_ELSEWHERE = "isolate_and_restart"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the diagnosis says."""

    reason: str
    summary: str
    line: int | None
    text: str | None
    mitigation: str | None
    action: str

    @property
    def is_passing(self) -> bool:
        """Whether trying again may help."""
        return self.action not in _OURS

    @property
    def is_of_the_node(self) -> bool:
        return self.action == _ELSEWHERE


@functools.cache
def _matcher() -> Matcher:
    return Matcher(load(None), reserved=EARLY)


def found(log: Path, status: int | None) -> Trouble:
    """The diagnosis of a piece of work that failed, as ``diagnose replay --exit-code`` makes it."""
    job = Job(log.stem, [Source("log", log)], _matcher())
    job.told = told_of(failed=True, exit_code=status)
    try:
        if log.exists():
            for chunk in job.sources[0].chunks():
                job.feed(0, chunk)
        job.close(0)
        report = job.report()
    finally:
        job.compression.kept.close()
    diagnosis, cause = report.diagnosis, report.diagnosis.root_cause
    return Trouble(
        diagnosis.reason,
        diagnosis.summary,
        cause.line if cause is not None else None,
        cause.text[:500] if cause is not None else None,
        diagnosis.mitigation,
        report.action.kind,
    )
