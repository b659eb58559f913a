"""Nodes: their failures and their checks."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import Sent, Text


class Node(BaseModel):
    name: str
    state: Literal["ok", "suspect", "isolated"]
    why: str | None
    first_seen: float
    last_seen: float
    last_failure: float | None
    failures: int
    changed: float | None


class NodePage(BaseModel):
    nodes: list[Node]
    next: str | None


class NodeFailure(BaseModel):
    job: str
    attempt: int
    at: float
    group_id: int
    category: str
    reason: str


class NodeCheck(BaseModel):
    """The result of a node check for one node."""

    at: float
    result: Literal["good", "slow", "suspect", "faulty"]
    why: str | None
    who: str
    """name of the token that reported it"""
    tested: int
    """nodes in that check"""
    rounds: int


class NodeFinding(BaseModel):
    """What somebody else found of a node: an alert, a condition of Kubernetes."""

    at: float
    """since when"""
    source: str
    name: str
    said: str | None
    who: str
    """name of the token that told it"""
    ended: float | None
    """None: it is not over"""


class FindingsTaken(BaseModel):
    taken: int
    left_out: int
    """what names no node"""
    why: str | None


class NodeDetail(Node):
    history: list[NodeFailure]
    findings: list[NodeFinding]
    """the latest 50"""
    checks: list[NodeCheck]
    """the latest 50"""


class NodeRequest(Sent):
    model_config = ConfigDict(extra="forbid")
    why: Text = Field(min_length=3, max_length=500, examples=["Xid 79 twice since yesterday"])
