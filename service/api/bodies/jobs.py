"""Jobs, their attempts, kept lines and numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class JobRow(BaseModel):
    """A job with its latest attempt."""

    name: str
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    category: str | None
    reason: str | None
    group_id: int | None
    cluster: str | None
    user: str | None
    framework: str | None
    gpus: int | None
    labels: dict[str, str]
    attempt: int
    first_seen: float
    last_seen: float
    step: float | None
    loss: float | None
    phase: str | None
    started_at: float
    ended_at: float | None
    exit_code: int | None
    confidence: float | None
    """of its diagnosis"""
    lines_in: int
    bytes_in: int
    lines_kept: int
    bytes_kept: int


class JobPage(BaseModel):
    jobs: list[JobRow]
    next: str | None
    """give it as ``before`` for the next page"""


class AttemptRow(BaseModel):
    number: int
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    started_at: float
    last_seen: float
    ended_at: float | None
    ended_by: str | None
    exit_code: int | None
    signal: int | None
    lines_in: int
    bytes_in: int
    lines_kept: int
    bytes_kept: int
    dropped: dict[str, int] | None
    phase: str | None
    step: float | None
    loss: float | None
    training_at: float | None
    """when its first step was seen"""
    progress_at: float | None
    category: str | None
    reason: str | None
    confidence: float | None
    summary: str | None
    final: bool | None
    lines_deleted: float | None
    """when the kept lines were deleted because of their age"""
    raw_deleted: float | None


class JobDetail(BaseModel):
    name: str
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    category: str | None
    reason: str | None
    group_id: int | None
    cluster: str | None
    user: str | None
    framework: str | None
    gpus: int | None
    labels: dict[str, str]
    attempt: int
    first_seen: float
    last_seen: float
    attempts: list[AttemptRow]


class Line(BaseModel):
    ord: int
    source: str
    line: int
    text: str
    rule: str | None
    cut: int
    rank: int | None
    node: str | None


class LinePage(BaseModel):
    job: str
    lines: list[Line]
    next: int | None
    """give it as ``after`` for the next page"""


class Deleted(BaseModel):
    """What was deleted."""

    job: str
    attempts: int
    lines: int
    """kept lines"""
    raw_bytes: int
    """on disk"""


class SeriesRow(BaseModel):
    name: str
    count: int
    last: float | None
    at_step: float | None
    least: float | None
    most: float | None
    points: list[list[float | None]]
    """[step, mean, least, most] of neighbouring values, oldest first"""


class SeriesList(BaseModel):
    job: str
    series: list[SeriesRow]
