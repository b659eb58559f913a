"""Actions: what was decided, who approves it, and who carries it out."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response

from service.api import bodies
from service.api.bodies.common import MOST
from service.api.common import REFUSALS, Asking, Here, JobName, Limit, Number, OfJob, Operator, Reader
from service.auth import Who
from service.errors import Unknown
from service.names import check_job, storable
from service.runtime import Service
from service.store import actions as stored
from service.store import pages, reading

_REFUSALS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    409: {"model": bodies.Problem, "description": "That may not happen to this action now"},
}
router = APIRouter(route_class=Asking, tags=["actions"], responses=_REFUSALS)
_STATES = "proposed|approved|dispatched|running|succeeded|failed|expired|rejected"
ActionId = Annotated[int, Path(ge=1, le=MOST)]


@router.get("/v1/actions", response_model=bodies.ActionPage, summary="Actions, the latest first")
async def actions(
    service: Here,
    who: Reader,
    limit: Limit = 50,
    before: Annotated[int | None, Query(ge=1, le=MOST, description="`next` of the page before")] = None,
    state: Annotated[str | None, Query(pattern=f"^({_STATES})$")] = None,
    job: OfJob = None,
) -> dict[str, Any]:
    job = who.named(check_job(job)) if job is not None else None
    rows = await service.read(
        who, lambda connection: reading.actions(connection, limit=limit, state=state, job=job, before=before)
    )
    return {"actions": rows, "next": rows[-1]["id"] if len(rows) == limit else None}


@router.get("/v1/actions/orders", response_model=bodies.Orders, summary="What an executor may take now, and what it has")
async def orders(
    service: Here,
    who: Operator,
    executor: Annotated[
        str, Query(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:@-]+$", description="how its names begin")
    ],
) -> dict[str, Any]:
    service.runner_at = time.time()
    return {
        "waiting": await service.actions.orders(who.projects),
        "in_hand": [asdict(one) for one in await service.actions.in_hand(f"{who.name}/{executor}")],
    }


@router.get("/v1/actions/{action}", response_model=bodies.ActionRecord, summary="One action")
async def action(action: ActionId, service: Here, who: Reader) -> dict[str, Any]:
    return await _shown(service, who, action)


@router.get("/v1/jobs/{job}/decision", summary="What was decided about a job, why, and what would change it")
async def decision(job: JobName, service: Here, who: Reader, attempt: Number = None) -> dict[str, Any]:
    """The policy's questions in order with their answers, the limits that held the action back, and the evidence."""

    def work(connection: Any) -> dict[str, Any] | None:
        key = reading.attempt_id(connection, job, attempt)
        return stored.decision_of(connection, key) if key is not None else None

    found = await service.read(who, work)
    if found is None:
        raise Unknown("nothing was decided about this job", where=job, remedy="a decision is made when an attempt has failed")
    return found


@router.post(
    "/v1/actions/claim",
    response_model=bodies.InHand,
    summary="Take the oldest action that waits for an executor",
    responses={204: {"description": "None waits"}},
)
async def claim_next(service: Here, who: Operator, claim: Annotated[bodies.ClaimNext, Body()]) -> Any:
    """204 if there is none: ask again later."""
    service.runner_at = time.time()
    taken = await service.actions.claim_next(_name(who.name, claim), claim.kinds, who.projects)
    return asdict(taken) if taken is not None else Response(status_code=204)


@router.post("/v1/actions/{action}/approve", response_model=bodies.Action, summary="Say yes")
async def approve(action: ActionId, service: Here, who: Operator) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    await service.actions.approve(action, who.name, who.may)
    return await _shown(service, who, action)


@router.post("/v1/actions/{action}/reject", response_model=bodies.Action, summary="Say no")
async def reject(action: ActionId, service: Here, who: Operator, reject: Annotated[bodies.Reject, Body()]) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    storable(reject.why, "why")
    await service.actions.reject(action, who.name, who.may, reject.why or "rejected")
    return await _shown(service, who, action)


@router.post("/v1/actions/{action}/claim", response_model=bodies.InHand, summary="Take this action, with a lease")
async def claim(action: ActionId, service: Here, who: Operator, claim: Annotated[bodies.Claim, Body()]) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    service.runner_at = time.time()
    return asdict(await service.actions.claim(action, _name(who.name, claim)))


@router.post("/v1/actions/{action}/resume", response_model=bodies.InHand, summary="Go on with what one has, after a crash")
async def resume(action: ActionId, service: Here, who: Operator, claim: Annotated[bodies.Claim, Body()]) -> dict[str, Any]:
    """Continue an action under a new fence. Look at the cluster first, because the action may already be done."""
    await _shown(service, who, action)  # of a project that the sender has
    return asdict(await service.actions.resume(action, _name(who.name, claim)))


@router.post(
    "/v1/actions/{action}/start", response_model=bodies.Action, summary="About to act: the last word on whether it may"
)
async def start(action: ActionId, service: Here, who: Operator, fence: Annotated[bodies.Fence, Body()]) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    await service.actions.begin(action, _name(who.name, fence), fence.fence)
    return await _shown(service, who, action)


@router.post("/v1/actions/{action}/renew", response_model=bodies.Action, summary="Still working: the lease begins again")
async def renew(action: ActionId, service: Here, who: Operator, fence: Annotated[bodies.Fence, Body()]) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    await service.actions.renew(action, _name(who.name, fence), fence.fence)
    return await _shown(service, who, action)


@router.post("/v1/actions/{action}/result", response_model=bodies.Action, summary="What came of it, however late")
async def result(action: ActionId, service: Here, who: Operator, result: Annotated[bodies.Result, Body()]) -> dict[str, Any]:
    await _shown(service, who, action)  # of a project that the sender has
    storable(result.said, "said")
    name = _name(who.name, result)
    await service.actions.finish(action, name, result.fence, result.succeeded, result.said, result.isolated)
    return await _shown(service, who, action)


def _name(token: str, claim: bodies.Claim) -> str:
    """The name of the executor: that of its token, and the one that it gives itself."""
    return f"{token}/{claim.executor}"


async def _shown(service: Service, who: Who, action: int) -> dict[str, Any]:
    found = await service.read(who, lambda connection: pages.actions.action(connection, action))
    if found is None:
        raise Unknown("there is no such action", where=str(action), remedy="GET /v1/actions lists them")
    return found
