"""The routes of Splunk's HTTP event collector. 200 means that it is on disk, and so does an acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from service.api import bodies
from service.api.common import Asking, Here, Json
from service.api.taking import Shipper, aside, body_of, head_of, retry_headers, stored
from service.auth import Who
from service.errors import Refused
from service.intake.protocols import splunk
from service.intake.protocols.identity import Identities
from service.intake.protocols.requests import Decoded, Head
from service.names import JOB_PATTERN, LONGEST_NAME
from service.runtime import Service

router = APIRouter(route_class=Asking, tags=["shippers"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {"application/json": {"schema": {"type": "object"}}}}
    for status, words in (
        (200, "All of it is on disk; ackId, if the request has a channel"),
        (400, "Some events, or all, can never be stored"),
        (401, "No token, or not a valid one"),
        (403, "The token may not send this"),
        (413, "Too much in one body"),
        (415, "Another encoding"),
        (422, "The body has another form"),
        (503, "Nothing is lost if it is sent again, after Retry-After"),
    )
}
_acks = splunk.Acks()


_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "fields"],
    "properties": {
        "event": {"anyOf": [{"type": "string", "minLength": 1}, {"type": ["number", "boolean", "object", "array"]}]},
        "fields": {
            "type": "object",
            "description": "Whose it is: `job`, or what else rules/identity.yaml lists",
            "required": ["job"],
            "properties": {
                "job": {
                    "type": ["string", "integer"],
                    "minimum": 0,
                    "pattern": JOB_PATTERN,
                    "maxLength": LONGEST_NAME,
                }
            },
        },
    },
}


def _body(kind: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema, "example": example}}}}


_EVENTS = {
    **_body("application/json", _EVENT, {"event": "step 100 | loss 2.31", "fields": {"job": "run7"}}),
    "description": "Several events may stand one after the other in a body, with nothing between them.",
}
_RAW = {
    **_body("text/plain", {"minLength": 1}, "step 100 | loss 2.31\n"),
    "parameters": [
        {
            "name": "job",
            "in": "query",
            "required": True,
            "description": "Whose lines these are; or what else rules/identity.yaml lists",
            "schema": {"type": "string", "pattern": JOB_PATTERN, "minLength": 1, "maxLength": LONGEST_NAME},
        }
    ],
}


@router.post(
    "/services/collector",
    summary="Splunk events",
    responses=_ANSWERS,
    openapi_extra=_EVENTS,
)
@router.post(
    "/services/collector/event",
    summary="Splunk events",
    responses=_ANSWERS,
    openapi_extra=_EVENTS,
)
async def events(request: Request, service: Here, who: Shipper) -> Response:
    """For Splunk's forwarders and client libraries, Fluent Bit, Vector and the OpenTelemetry collector."""
    return await _taken(splunk.decode, request, service, who)


@router.post(
    "/services/collector/raw",
    summary="Splunk raw lines",
    responses=_ANSWERS,
    openapi_extra=_RAW,
)
async def raw(request: Request, service: Here, who: Shipper) -> Response:
    """Lines of one source. `?job=`, `host` and `source` say whose they are."""
    return await _taken(splunk.decode_raw, request, service, who)


@router.post("/services/collector/ack", summary="Whether it is stored", responses=_ANSWERS)
async def acks(who: Shipper, asked: Annotated[bodies.Acks, Body()]) -> dict[str, Any]:
    """Yes for each number that was given: only what is on disk gets one."""
    return {"acks": _acks.stored(asked.acks)}


@router.get("/services/collector/health", summary="Whether events are taken", responses={503: _ANSWERS[503]})
async def health(service: Here) -> Response:
    """For clients that ask before they send. It needs no token."""
    found = await service.probes.found()
    if service.ready and found.disk is None and service.journal.size <= service.settings.journal_limit:
        return Json(splunk.HEALTHY)
    return Json(splunk.FULL, 503)


async def _taken(
    decode: Callable[[Head, bytes, Identities], Decoded], request: Request, service: Service, who: Who
) -> Response:
    head = head_of(request)
    try:
        async with body_of(request, head, service) as body:
            decoded = await aside(partial(decode, head, body, service.identities), len(body))
        storing = await stored(service, who, decoded.batches)
    except Refused as refused:
        status, said = splunk.refusal(refused)
        return Json(said, status, retry_headers(refused))
    if storing.rejected:
        decoded.reject(storing.why or "", storing.rejected)
    status, said = splunk.answer(decoded, _acks.give() if splunk.CHANNEL in head.headers and not decoded.rejected else None)
    return Json(said, status)
