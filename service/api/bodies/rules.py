"""Learned rules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import Sent, Text


class RuleRow(BaseModel):
    """A rule: shipped with the program, or learned."""

    id: str
    family: Literal["failures", "filters"]
    file: str
    title: str
    pattern: str
    kind: str | None
    reason: str | None
    layer: str | None
    severity: str | None
    framework: str | None
    mitigation: str | None
    reference: str | None
    state: Literal["shipped", "proposed", "shadow", "active", "retired"]
    scope: str | None = None
    why: str | None = None
    matched: int | None = None
    dirty: int | None = None
    provenance: dict[str, Any] | None = None


class RuleChange(Sent):
    """Why a person put a rule into another state."""

    model_config = ConfigDict(extra="forbid")
    why: Text | None = Field(None, max_length=2000, examples=["matches nothing but progress of our own loader"])


class RulePage(BaseModel):
    rules: list[RuleRow]
    next: str | None
