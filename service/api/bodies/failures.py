"""Failures: groups, occurrences, corrections."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from diagnose.knowledge.taxonomy import shipped_taxonomy
from service.api.bodies.common import MOST, Sent, Text


class Group(BaseModel):
    id: int
    fingerprint: str
    category: str
    reason: str
    title: str
    rule: str | None
    root_text: str | None
    mitigation: str | None
    first_seen: float
    last_seen: float
    count: int
    gpu_seconds_lost: float
    state: Literal["open", "resolved", "ignored"]
    regressed: bool
    state_changed: float | None
    note: str | None
    assignee: str | None
    """who looks after it"""


class GroupPage(BaseModel):
    failures: list[Group]
    next: str | None


class NodeCount(BaseModel):
    node: str
    count: int
    last_seen: float


class UserCount(BaseModel):
    user: str
    count: int


class Occurrence(BaseModel):
    job: str
    attempt: int
    at: float
    user: str | None
    cluster: str | None
    gpu_seconds: float
    """lost"""
    still: float
    """of these, standing still"""
    back: float
    """of these, the way back"""
    whole: bool
    """no checkpoint is known, so it is the whole run"""


class Said(BaseModel):
    at: float
    who: str
    text: str


class GroupDetail(Group):
    nodes: list[NodeCount]
    users: list[UserCount]
    occurrences: list[Occurrence]
    """the latest 50"""
    comments: list[Said]
    """the latest first"""


class OccurrencePage(BaseModel):
    occurrences: list[Occurrence]


class GroupChange(Sent):
    model_config = ConfigDict(extra="forbid")
    state: Literal["open", "resolved", "ignored"] | None = None
    note: Text | None = Field(None, max_length=10_000, examples=["fixed in driver 570.86"])
    assignee: Text | None = Field(None, max_length=100, examples=["kim"])


class Comment(Sent):
    model_config = ConfigDict(extra="forbid")
    text: Text = Field(min_length=1, max_length=10_000)


def _reasons(schema: dict[str, Any]) -> None:
    """Say which reasons stand under which category."""
    taxonomy = shipped_taxonomy()
    under: dict[str, list[str]] = {}
    for reason, category in taxonomy.category_of.items():
        under.setdefault(category, []).append(reason)
    schema["anyOf"] = [
        {"properties": {"category": {"const": category}, "reason": {"enum": sorted(reasons)}}}
        for category, reasons in sorted(under.items())
    ]


class Correct(Sent):
    """The right diagnosis, as a person gives it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_reasons)
    category: str = Field(max_length=100, examples=["infrastructure"])
    reason: str = Field(max_length=100, examples=["ecc_error"])
    source: Text | None = Field(None, max_length=1000, examples=["rank0.log"])
    line: int | None = Field(None, ge=1, le=MOST, examples=[4711])
    note: Text | None = Field(None, max_length=10_000)
    attempt: int | None = Field(None, ge=0, le=1_000_000)


class Correction(BaseModel):
    id: int
    job: str
    attempt: int
    at: float
    who: str
    category: str
    reason: str
    source: str | None
    line: int | None
    note: str | None
    was: dict[str, Any]
    lesson: dict[str, Any] | None = None
    """what was learned from it: rule (new, in shadow), known (a rule knew it), refused, or problem; null: nothing yet"""


class CorrectionList(BaseModel):
    corrections: list[Correction]
