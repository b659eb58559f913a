"""The routes of Elasticsearch's clients, below ``/elastic``: what they ask at their start, and ``_bulk``."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from service.api.common import Here, Json
from service.api.taking import Shipper, aside, body_of, head_of, retry_headers, stored
from service.auth import Who
from service.errors import Refused
from service.intake.protocols import elastic
from service.runtime import Service

router = APIRouter(tags=["shippers"], prefix="/elastic")

_PRODUCT = {"X-Elastic-Product": "Elasticsearch"}
"""clients talk to nobody whose answers do not have it"""
_JSON = {"application/json": {"schema": {"type": "object"}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": _JSON}
    for status, words in (
        (200, "What became of each document, in order: 201 is on disk"),
        (400, "The body is not well formed; nothing of it was stored"),
        (401, "No token, or not a valid one"),
        (403, "The token may not do this"),
        (413, "Too much in one body"),
        (415, "Another encoding"),
        (422, "A parameter is out of its bounds"),
        (429, "Nothing is lost if it is sent again, after Retry-After"),
        (503, "The same"),
    )
}
_REFUSED: dict[int | str, dict[str, Any]] = {status: _ANSWERS[status] for status in (401, 403, 503)}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"create": {}}\n{"message": "step 100 | loss 2.31", "job": "run7"}\n',
            }
        },
    }
}


@router.get("/", summary="Elasticsearch's version", responses=_REFUSED)
async def about(who: Shipper) -> Response:
    """Asked by Filebeat, Vector and client libraries when they start."""
    return Json(elastic.ABOUT, headers=_PRODUCT)


@router.get("/_license", summary="Elasticsearch's licence", responses=_REFUSED)
async def licence(who: Shipper) -> Response:
    """Asked by Filebeat when it starts."""
    return Json(elastic.LICENSE, headers=_PRODUCT)


@router.get("/_cluster/health", summary="Elasticsearch's health", responses=_REFUSED)
async def health(who: Shipper) -> Response:
    """Asked by Vector when it starts."""
    return Json(elastic.HEALTH, headers=_PRODUCT)


@router.put("/_bulk", summary="Elasticsearch's bulk", responses=_ANSWERS, openapi_extra=_BODY)
@router.post("/_bulk", summary="Elasticsearch's bulk", responses=_ANSWERS, openapi_extra=_BODY)
async def bulk(request: Request, service: Here, who: Shipper) -> Response:
    """For Filebeat, Logstash, Vector, Fluent Bit and client libraries. Fields of a document name its job, or `?job=`."""
    return await _taken(request, service, who, None)


@router.put("/{index}/_bulk", summary="Elasticsearch's bulk, for one index", responses=_ANSWERS, openapi_extra=_BODY)
@router.post("/{index}/_bulk", summary="Elasticsearch's bulk, for one index", responses=_ANSWERS, openapi_extra=_BODY)
async def bulk_of_index(request: Request, service: Here, who: Shipper, index: Annotated[str, Path(max_length=255)]) -> Response:
    """The index is given back in the answer, and says nothing of whose the lines are."""
    return await _taken(request, service, who, index)


async def _taken(request: Request, service: Service, who: Who, index: str | None) -> Response:
    began = time.monotonic()
    head = head_of(request)
    try:
        async with body_of(request, head, service) as body:
            found = await aside(partial(elastic.decode, head, body, service.identities, index), len(body))
        storing = await stored(service, who, found.decoded.batches)
    except Refused as refused:
        return Json(elastic.refusal(refused), refused.status, {**_PRODUCT, **retry_headers(refused)})
    took_ms = int((time.monotonic() - began) * 1000)
    return Json(elastic.answer(found, storing.refused, took_ms), headers=_PRODUCT)
