"""Failure groups: the same failure over jobs, nodes and days."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query

from service.api import bodies
from service.api.bodies.common import MOST
from service.api.common import REFUSALS, Asking, Before, Here, Limit, Operator, Reader, Word, place, place_of
from service.errors import Unknown
from service.names import storable
from service.store import reading

router = APIRouter(route_class=Asking, tags=["failures"], responses=REFUSALS)
GroupId = Annotated[int, Path(ge=1, le=MOST)]


@router.get("/v1/failures", response_model=bodies.GroupPage, summary="Failure groups, the latest first")
async def groups(
    service: Here,
    who: Reader,
    limit: Limit = 50,
    before: Before = None,
    since: Annotated[float | None, Query(ge=0, le=1e12)] = None,
    state: Annotated[str | None, Query(pattern="^(open|resolved|ignored)$")] = None,
    category: Word = None,
    reason: Word = None,
    node: Word = None,
    user: Word = None,
) -> dict[str, Any]:
    equal = {"state": state, "category": category, "reason": reason}
    given = {column: value for column, value in equal.items() if value is not None and storable(value, column)}
    storable(node, "node")
    storable(user, "user")
    at = place(before)
    rows = await service.read(
        who,
        lambda connection: reading.groups(
            connection,
            limit=limit,
            before=at,
            since=since,
            equal=given,
            node=node,
            user=user,
        ),
    )
    return {"failures": rows, "next": place_of(rows[-1]) if len(rows) == limit else None}


@router.get("/v1/failures/{group}", response_model=bodies.GroupDetail, summary="A group: nodes, users, latest occurrences")
async def group(group: GroupId, service: Here, who: Reader) -> dict[str, Any]:
    found = await service.read(who, lambda connection: reading.group(connection, group))
    if found is None:
        raise _unknown(group)
    return found


@router.get("/v1/failures/{group}/occurrences", response_model=bodies.OccurrencePage, summary="All jobs that failed so")
async def occurrences(
    group: GroupId,
    service: Here,
    who: Reader,
    limit: Limit = 100,
    before: Annotated[float | None, Query(ge=0, le=1e12, description="`at` of the last one of the page before")] = None,
) -> dict[str, Any]:
    rows = await service.read(who, lambda connection: reading.occurrences(connection, group, limit=limit, before=before))
    if not rows and await service.read(who, lambda connection: reading.group(connection, group)) is None:
        raise _unknown(group)
    return {"occurrences": rows}


@router.patch("/v1/failures/{group}", response_model=bodies.GroupDetail, summary="Set a group's state, note or assignee")
async def change(group: GroupId, service: Here, who: Operator, change: Annotated[bodies.GroupChange, Body()]) -> dict[str, Any]:
    """A resolved group that occurs again is open again, and marked as regressed. What is not named stays as it is."""
    changes = change.model_dump(exclude_unset=True)
    if changes.get("state", "open") is None:
        del changes["state"]
    now = time.time()
    if await service.read(who, lambda connection: reading.group(connection, group)) is None:
        raise _unknown(group)
    if changes and not await service.store.awrite(
        lambda connection: reading.change_group(connection, group, changes, who.name, now)
    ):
        raise _unknown(group)
    if changes:
        service.events.publish("failure.changed", group=group, who=who.name, **changes)
    found = await service.read(who, lambda connection: reading.group(connection, group))
    if found is None:
        raise _unknown(group)
    return found


@router.post("/v1/failures/{group}/comments", response_model=bodies.GroupDetail, summary="Say something of a group")
async def comment(group: GroupId, service: Here, who: Operator, comment: Annotated[bodies.Comment, Body()]) -> dict[str, Any]:
    text, now = storable(comment.text, "text") or "", time.time()
    if await service.read(who, lambda connection: reading.group(connection, group)) is None:
        raise _unknown(group)
    await service.store.awrite(lambda connection: reading.comment(connection, group, text, who.name, now))
    service.events.publish("failure.changed", group=group, who=who.name)
    found = await service.read(who, lambda connection: reading.group(connection, group))
    if found is None:
        raise _unknown(group)
    return found


def _unknown(group: int) -> Unknown:
    return Unknown("there is no such failure group", where=str(group), remedy="GET /v1/failures lists them")
