"""Actions and orders: what is proposed, claimed, carried out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import MOST, Sent, Text


class CheckTaken(BaseModel):
    at: float
    good: int
    slow: list[str]
    suspect: list[str]
    faulty: list[str]


class Action(BaseModel):
    id: int
    key: str
    job: str | None
    attempt: int | None
    group_id: int | None
    kind: str
    nodes: list[str]
    restart_from: dict[str, Any] | None
    skip_batches: list[int] | None
    why: str
    state: Literal["proposed", "approved", "dispatched", "running", "succeeded", "failed", "expired", "rejected"]
    mode: str | None
    decided_by: str | None
    executor: str | None
    claimed_by: str | None
    fence: int
    lease_until: float | None
    result: dict[str, Any] | None
    created: float
    changed: float
    expires: float | None
    not_before: float
    claims: int
    late: bool
    """the result came after the lease had lapsed"""
    notes: list[str] | None
    reason: str | None
    incident: str | None
    avoid: list[str] | None
    """nodes that the restart leaves out, without isolating them"""
    owner: str | None
    """the project and the job's owner, as the scheduler says"""
    subject: str | None
    """the job, in the scheduler's words"""
    unconfirmed: str | None
    """why a person must decide: nobody except the log says that it is called for"""
    replaced_by: int | None
    """the action that a later decision put in its place"""


class Aftermath(BaseModel):
    attempt: int
    state: str
    """running, healthy, failed_alike (of the same group), failed_otherwise"""
    reason: str | None
    failed_at_step: float | None
    """the last step of the attempt that the action is about"""
    reached_step: float | None
    passed: bool | None
    """whether it came further than that; null: the steps are not known"""
    away_s: float
    """from the end of the one to the begin of the other"""


class ActionRecord(Action):
    basis: dict[str, Any] | None
    """the decision with its reasons and evidence as they were, and when the report was made that it is about"""
    aftermath: Aftermath | None = None
    """the next attempt of the job, after a restart"""


class Reject(Sent):
    model_config = ConfigDict(extra="forbid")
    why: Text = Field("", max_length=2000, examples=["the node was replaced an hour ago"])


class Claim(Sent):
    """Who takes it: an executor that polls."""

    model_config = ConfigDict(extra="forbid")
    executor: str = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:@-]+$", examples=["runner@login-1"])


class ClaimNext(Claim):
    kinds: list[str] = Field(min_length=1, max_length=20, examples=[["restart", "isolate_and_restart"]])


class Fence(Claim):
    """The number that the claim gave: an older one is refused."""

    fence: int = Field(ge=1, le=MOST, examples=[1])


class Result(Fence):
    succeeded: bool
    said: Text = Field("", max_length=2000, examples=["drained gpu-17, requeued 8812"])
    isolated: list[str] | None = Field(None, max_length=4096, examples=[["gpu-17"]])
    """nodes of the order that were taken out of service, even if the rest failed; null: all if it succeeded, else none"""


class Order(BaseModel):
    """What is to be done."""

    id: int
    key: str
    """do not repeat what was already done under this key"""
    kind: str
    job: str | None
    attempt: int | None
    labels: dict[str, str]
    nodes: list[str]
    avoid: list[str]
    check: list[str]
    """nodes that are to be tested together before the restart"""
    restart_from: dict[str, Any] | None
    skip_batches: list[int] | None
    why: str
    last_seen: float | None
    """when the attempt was last heard of before the decision; a job that began later is not the one that failed"""
    link: str | None = None
    """the action's page; null: the service does not know where people find it (its setting public_url)"""
    subject: str | None = None
    """the job in the scheduler's words when it was decided; null: use the labels"""
    claim: dict[str, Any] | None = None
    """what the scheduler must confirm before anything is done; null: nothing"""


class InHand(BaseModel):
    """An action that an executor has."""

    id: int
    fence: int
    lease_until: float
    lease_s: float
    """the executor must renew its lease within so many seconds"""
    order: Order


class HeldAction(BaseModel):
    """An action that an executor has taken and not finished."""

    id: int
    claimed_by: str
    begun: bool


class Orders(BaseModel):
    waiting: list[Order]
    """oldest first"""
    in_hand: list[HeldAction]
    """orders of the executor that asks"""


class ActionPage(BaseModel):
    actions: list[Action]
    next: int | None
