"""The course of a job's attempts, step by step: from where to where, what was saved, and where it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from diagnose.decision.scores import Score
from service.store import tables as t
from service.store.diagnoses import unpacked
from service.store.training import checkpoints, scores

MOST = 12
"""the latest attempts, which are drawn"""


@dataclass(frozen=True, slots=True)
class Mark:
    """A checkpoint."""

    step: int
    path: str | None = None
    told_by: str = "log"
    complete: bool = True
    healthy: bool | None = None
    at: float | None = None
    why: str | None = None
    scores: tuple[Score, ...] = ()
    doubted: bool = False
    """a roll-back takes another one if there is one"""

    @property
    def state(self) -> str:
        """spoilt; begun (nobody said whether it was finished); or saved."""
        return "spoilt" if self.healthy is False else "saved" if self.complete else "begun"


@dataclass(slots=True)
class Lane:
    """One attempt."""

    number: int
    first: float | None
    """its first known step"""
    last: float | None
    onset: float | None
    """the step at which it went wrong"""
    phase: str | None
    marks: list[Mark] = field(default_factory=list)


def lanes(connection: Connection, attempts: Sequence[dict[str, Any]]) -> list[Lane]:
    """For these rows of ``reading.job``, all of one job, the latest first."""
    shown = list(attempts[:MOST])
    ids = [row["id"] for row in shown]
    reports = _reports(connection, ids)
    firsts = _firsts(connection, ids)
    told = _told(connection, ids)
    return [_lane(row, reports.get(row["id"]), firsts.get(row["id"]), told.get(row["id"], [])) for row in shown]


def _lane(row: dict[str, Any], report: dict[str, Any] | None, first: float | None, told: list[Mark]) -> Lane:
    diagnosis = report["diagnosis"] if report is not None else {}
    failed = row["outcome"] == "failed"
    seen = [
        Mark(one["step"], one["path"], complete=one["complete"])
        for one in (report.get("checkpoints") or [] if report is not None else [])
    ]
    # What the training reported counts more than what the log says.
    marks = {mark.step: mark for mark in [*seen, *told]}
    ordered = sorted(marks.values(), key=lambda mark: mark.step)
    affected = diagnosis.get("affected") or {}
    onset = affected.get("first") if affected else diagnosis.get("step") if failed else None
    return Lane(row["number"], first, row["step"], onset, diagnosis.get("phase") or row["phase"], ordered)


def _reports(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    d = t.diagnoses.c
    rows = connection.execute(select(d.attempt_id, d.report).where(d.attempt_id.in_(ids)))
    return {attempt: unpacked(report) for attempt, report in rows}


def _firsts(connection: Connection, ids: Sequence[int]) -> dict[int, float]:
    """The first step of each that has a number for it."""
    s = t.series.c
    rows = connection.execute(select(s.attempt_id, s.points).where(s.attempt_id.in_(ids), s.name == "loss"))
    found = {attempt: next((point[0] for point in unpacked(points) if point[0] is not None), None) for attempt, points in rows}
    return {attempt: first for attempt, first in found.items() if first is not None}


def _told(connection: Connection, ids: Sequence[int]) -> dict[int, list[Mark]]:
    """Attempt -> its checkpoints, the lowest step first."""
    a = t.attempts.c
    numbers = {row.number: row.id for row in connection.execute(select(a.id, a.number).where(a.id.in_(ids)))}
    job = connection.execute(select(a.job_id).where(a.id.in_(ids)).limit(1)).scalar()
    if job is None:
        return {}
    of_each: dict[tuple[int, int], list[Score]] = {}
    for score in scores.known(connection, job):
        of_each.setdefault((score.attempt, score.step), []).append(score)
    found: dict[int, list[Mark]] = {}
    for one in sorted(checkpoints.known(connection, job), key=lambda one: one.step):
        if one.attempt in numbers:
            its = tuple(of_each.get((one.attempt, one.step), ()))
            mark = Mark(one.step, one.path, "api", True, one.healthy, one.at, one.why, its, one.doubt is not None)
            found.setdefault(numbers[one.attempt], []).append(mark)
    return found
