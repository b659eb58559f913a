"""Webhooks: the addresses that are told of failures and actions."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from service.api import bodies
from service.api.bodies.common import MOST
from service.api.common import REFUSALS, Admin, Asking, Here
from service.errors import Unknown
from service.net.client import Unreachable
from service.net.guarded import shown
from service.notify import courier
from service.store import webhooks as stored

router = APIRouter(
    route_class=Asking,
    tags=["webhooks"],
    responses={**REFUSALS, 409: {"model": bodies.Problem, "description": "There are too many already"}},
)
WebhookId = Annotated[int, Path(ge=1, le=MOST)]


@router.post("/v1/webhooks", response_model=bodies.WebhookMade, status_code=201, summary="Tell somebody of what happens")
async def add(service: Here, who: Admin, wanted: Annotated[bodies.WebhookWanted, Body()]) -> dict[str, Any]:
    """Each delivery is signed as https://www.standardwebhooks.com says; the secret is shown here and never again."""
    service.courier.outgoing.check(wanted.url)
    secret = courier.settled_secret(wanted.secret)
    events = tuple(dict.fromkeys(wanted.events))
    projects = tuple(dict.fromkeys(wanted.projects or ())) or None
    now = time.time()
    made = await service.store.awrite(
        lambda connection: stored.add(connection, wanted.url, wanted.format, secret, events, who.name, now, projects)
    )
    return {"id": made, "to": shown(wanted.url), "format": wanted.format, "events": events, "projects": projects,
            "active": True, "created": now, "secret": secret}  # fmt: skip


@router.get("/v1/webhooks", response_model=bodies.WebhookList, summary="Who is told")
async def listed(service: Here, who: Admin) -> dict[str, Any]:
    found = await service.store.aread(stored.listed)
    standing = await service.store.aread(stored.standing)
    return {"webhooks": [_row(one, standing.get(one.id, {})) for one in found]}


@router.delete("/v1/webhooks/{webhook}", status_code=204, response_class=Response, summary="Tell somebody no more")
async def remove(webhook: WebhookId, service: Here, who: Admin) -> Response:
    now = time.time()
    if not await service.store.awrite(lambda connection: stored.remove(connection, webhook, who.name, now)):
        raise _unknown(webhook)
    return Response(status_code=204)


@router.get("/v1/webhooks/{webhook}/deliveries", response_model=bodies.DeliveryList, summary="Its latest deliveries")
async def deliveries(webhook: WebhookId, service: Here, who: Admin) -> dict[str, Any]:
    if await service.store.aread(lambda connection: stored.find(connection, webhook)) is None:
        raise _unknown(webhook)
    return {"deliveries": await service.store.aread(lambda connection: stored.deliveries(connection, webhook, 100))}


@router.post("/v1/webhooks/{webhook}/test", response_model=bodies.WebhookTested, summary="Send it something now")
async def test(webhook: WebhookId, service: Here, who: Admin) -> dict[str, Any]:
    found = await service.store.aread(lambda connection: stored.find(connection, webhook))
    if found is None:
        raise _unknown(webhook)
    now = time.time()
    try:
        answer = await courier.send(service.courier.outgoing, found, courier.notice_of_test(webhook, now), now)
    except Unreachable as error:
        return {"delivered": False, "status": None, "why": str(error)}
    # The answer is not shown: a person who may add a webhook could read internal pages with it.
    return {"delivered": 200 <= answer.status < 300, "status": answer.status, "why": None}


def _row(one: stored.Webhook, standing: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": one.id,
        "to": shown(one.url),
        "format": one.format,
        "events": one.events,
        "projects": one.projects,
        "active": one.active,
        "off_because": one.off_because,
        "created": one.created,
        "waiting": standing.get("waiting", 0),
        "last_status": standing.get("last_status"),
    }


def _unknown(webhook: int) -> Unknown:
    return Unknown("there is no such webhook", where=str(webhook), remedy="GET /v1/webhooks lists them")
