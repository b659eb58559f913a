"""Nodes: what failed on them, what tests say of them, and whether they are trusted."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query
from sqlalchemy import Connection

from diagnose.agent.redaction import redact
from diagnose.history import CheckResult
from diagnose.policy import ISOLATE, RELEASE
from service.api import shapes
from service.api.common import REFUSALS, Here, Limit, Operator, Reader, storable
from service.errors import Refused, Unknown
from service.service import Service
from service.store import nodechecks, overview, reading
from service.store.nodechecks import Check, Checked

router = APIRouter(tags=["nodes"], responses=REFUSALS)
_LONGEST = 2000


@router.get("/v1/nodes", response_model=shapes.NodePage, summary="Nodes by name")
async def nodes(
    service: Here,
    who: Reader,
    limit: Limit = 200,
    state: Annotated[str | None, Query(pattern="^(ok|suspect|isolated)$")] = None,
    after: Annotated[str, Query(max_length=200, description="`next` of the page before")] = "",
) -> dict[str, Any]:
    storable(after, "after")
    rows = await service.store.aread(lambda connection: reading.nodes(connection, limit=limit, state=state, after=after))
    return {"nodes": rows, "next": rows[-1]["name"] if len(rows) == limit else None}


@router.post("/v1/nodes/checks", response_model=shapes.CheckTaken, status_code=201, summary="What a node check found")
async def checks(service: Here, who: Operator, verdict: Annotated[shapes.CheckVerdict, Body()]) -> dict[str, Any]:
    """Stored for each node, and decided about: a faulty node may be isolated, one that was isolated may come back, as the
    policy says. Sent again with the same time it counts once.
    """
    now = time.time()
    check = _check(verdict, now)
    await service.actions.take_check(check, who.name)
    named = {kind: check.named(kind) for kind in ("slow", "suspect", "faulty")}
    service.events.publish("nodes.checked", who=who.name, tested=len(check.nodes), **named)
    return {"at": check.at, "good": len(check.named("good")), **named}


def _check(verdict: shapes.CheckVerdict, now: float) -> Check:
    """The verdict, node by node. A clock that goes ahead is not believed: what is to come clears nobody."""
    links: dict[str, list[str]] = {}
    for link in verdict.links:
        for one in link:
            links.setdefault(one, []).extend(other for other in link if other != one)
    found: dict[str, Checked] = {}
    lists: tuple[tuple[CheckResult, list[str]], ...] = (
        ("good", verdict.good),
        ("faulty", verdict.faulty),
        ("slow", verdict.slow),
        ("suspect", verdict.suspects),
    )
    for result, nodes in lists:
        for node in nodes:
            storable(node, "node")
            if node in found:
                raise Refused("it is named twice", where=node, remedy="send the verdict as `diagnose nodes check` prints it")
            why = verdict.why.get(node)
            if why is None and node in links:
                others = ", ".join(sorted(set(links[node]))[:8])
                why = f"passed, but not together with {others}: look at the way between"
            found[node] = Checked(node, result, _storable_words(why))
    if not found:
        raise Refused("no node was tested", where="verdict", remedy="send the line whose kind is verdict")
    return Check(min(verdict.time if verdict.time is not None else now, now), tuple(found.values()), verdict.rounds)


def _storable_words(text: str | None) -> str | None:
    """What a broken node said, as far as a database holds it: better with a mark than not at all."""
    if text is None:
        return None
    return redact(text[:_LONGEST].replace("\0", "\ufffd")).text


@router.get("/v1/nodes/{node}", response_model=shapes.NodeDetail, summary="A node and the failures it is suspected of")
async def node(node: Annotated[str, Path(max_length=200)], service: Here, who: Reader) -> dict[str, Any]:
    storable(node, "node")

    def work(connection: Connection) -> dict[str, Any] | None:
        found = reading.node(connection, node)
        return {**found, "checks": nodechecks.of_node(connection, node)} if found is not None else None

    found = await service.store.aread(work)
    if found is None:
        raise Unknown("there is no such node", where=node, remedy="GET /v1/nodes lists them")
    return found


@router.post("/v1/nodes/{node}/isolate", response_model=shapes.Action, status_code=201, summary="Take a node out of service")
async def isolate(
    node: Annotated[str, Path(max_length=200)], service: Here, who: Operator, request: Annotated[shapes.NodeRequest, Body()]
) -> Any:
    """An action that is approved by whoever asks: an executor carries it out."""
    return await _asked(service, ISOLATE, node, who.name, request.why)


@router.post("/v1/nodes/{node}/release", response_model=shapes.Action, status_code=201, summary="Give a node back")
async def release(
    node: Annotated[str, Path(max_length=200)], service: Here, who: Operator, request: Annotated[shapes.NodeRequest, Body()]
) -> Any:
    return await _asked(service, RELEASE, node, who.name, request.why)


async def _asked(service: Service, kind: str, node: str, who: str, why: str) -> Any:
    storable(node, "node")
    storable(why, "why")
    found = await service.actions.ask_for_node(kind, node, who, why)
    return await service.store.aread(lambda connection: overview.action(connection, found))
