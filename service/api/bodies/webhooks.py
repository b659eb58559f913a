"""Webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import Sent
from service.projects import PROJECT

_LETTER = "[A-Za-z0-9+/]"
_FOUR = f"(?:{_LETTER}{{4}})"
_SECRET = f"^whsec_(?:{_FOUR}{{8,21}}|{_FOUR}{{8,20}}{_LETTER}{{3}}=|{_FOUR}{{8,21}}{_LETTER}{{2}}==)$"
"""base64 of 24 to 64 bytes"""
_URL = r'^https://[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)+(:[1-9][0-9]{0,3}|:[1-5][0-9]{4})?(/[!"$-\[\]-~]*)?$'
"""what is always taken; others may be"""
Told = Literal["failures", "alarms", "regressions", "actions"]


class WebhookWanted(Sent):
    """A new webhook: its address, and what it is told of."""

    model_config = ConfigDict(extra="forbid")
    url: str = Field(
        max_length=2000, json_schema_extra={"pattern": _URL}, examples=["https://hooks.slack.com/services/T0/B0/secret"]
    )
    format: Literal["cloudevents", "slack", "alertmanager"] = "cloudevents"
    events: list[Told] = Field(["failures", "alarms", "regressions", "actions"], min_length=1, max_length=8)
    projects: list[Annotated[str, Field(max_length=60, json_schema_extra={"pattern": f"^{PROJECT}$"})]] | None = Field(
        None, min_length=1, max_length=50, description="whose events it is told; everybody's if not given"
    )
    secret: str | None = Field(
        None,
        max_length=200,
        json_schema_extra={"pattern": _SECRET},
        description="`whsec_` and base64 of 24 to 64 bytes; made if not given",
    )


class WebhookMade(BaseModel):
    id: int
    to: str
    """without its path, which may be secret"""
    format: str
    events: list[str]
    projects: list[str] | None
    """whose events; null: everybody's"""
    active: bool
    created: float
    secret: str
    """deliveries are signed with it; it is not shown again"""


class WebhookRow(BaseModel):
    id: int
    to: str
    format: str
    events: list[str]
    projects: list[str] | None
    """whose events; null: everybody's"""
    active: bool
    off_because: str | None
    created: float
    waiting: int
    """deliveries that did not arrive yet"""
    last_status: str | None


class WebhookList(BaseModel):
    webhooks: list[WebhookRow]


class DeliveryRow(BaseModel):
    id: int
    event: str
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    next_at: float
    last_status: str | None
    created: float


class DeliveryList(BaseModel):
    deliveries: list[DeliveryRow]


class WebhookTested(BaseModel):
    delivered: bool
    status: int | None
    """status of the answer; null: there was none"""
    why: str | None
