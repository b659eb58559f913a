"""Actions that diagnoses ask for. They are proposed; nothing is done by itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api import shapes
from service.api.common import REFUSALS, Here, Limit, Reader
from service.batch import check_job
from service.store import reading

router = APIRouter(tags=["actions"], responses=REFUSALS)
_STATES = "proposed|approved|dispatched|running|succeeded|failed|expired|rejected"


@router.get("/v1/actions", response_model=shapes.ActionPage, summary="Actions, the latest first")
async def actions(
    service: Here,
    who: Reader,
    limit: Limit = 50,
    before: Annotated[int | None, Query(ge=1, lt=1 << 62, description="`next` of the page before")] = None,
    state: Annotated[str | None, Query(pattern=f"^({_STATES})$")] = None,
    job: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    if job is not None:
        check_job(job)
    rows = await service.store.aread(
        lambda connection: reading.actions(connection, limit=limit, state=state, job=job, before=before)
    )
    return {"actions": rows, "next": rows[-1]["id"] if len(rows) == limit else None}
