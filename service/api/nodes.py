"""Nodes: what failed on them, and whether they are trusted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from service.api import shapes
from service.api.common import REFUSALS, Here, Limit, Reader, storable
from service.errors import Unknown
from service.store import reading

router = APIRouter(tags=["nodes"], responses=REFUSALS)


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


@router.get("/v1/nodes/{node}", response_model=shapes.NodeDetail, summary="A node and the failures it is suspected of")
async def node(node: Annotated[str, Path(max_length=200)], service: Here, who: Reader) -> dict[str, Any]:
    storable(node, "node")
    found = await service.store.aread(lambda connection: reading.node(connection, node))
    if found is None:
        raise Unknown("there is no such node", where=node, remedy="GET /v1/nodes lists them")
    return found
