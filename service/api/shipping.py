"""The routes of shippers: OTLP/HTTP logs, Loki's push, JSON records. 2xx means that it is on disk.

Each protocol has its own way to say what could not be stored. 429 and 5xx always mean that the sender must send again, other
4xx that it must not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from service.api.bodies import Problem
from service.api.common import REFUSALS, Here
from service.api.taking import Shipper, aside, body_of, head_of, retry_headers, stored
from service.auth import Who
from service.errors import BadBody, Refused, Unsupported
from service.intake.batch import Batch
from service.intake.protocols import loki, otlp
from service.intake.protocols.encodings import Bounded
from service.intake.protocols.identity import Identities
from service.intake.protocols.records import LARGEST_ARRAY, Records
from service.intake.protocols.requests import Decoded, Head
from service.intake.storing import Storing
from service.names import JOB_PATTERN, LONGEST_NAME
from service.runtime import Service

router = APIRouter(tags=["shippers"])

_RECORDS = ("", "application/json", "application/x-ndjson", "application/jsonl", "application/x-jsonlines", "text/plain")


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with whole bodies."""

    name: str
    decode: Callable[[Head, bytes, Identities], Decoded]
    answer: Callable[[str, Decoded], Response]
    refuse: Callable[[str, Refused], Response | None]
    """a refusal in the protocol's own form; None: ours"""


def _otlp_answer(media_type: str, decoded: Decoded) -> Response:
    return Response(otlp.answer(media_type, decoded), media_type=media_type)


def _otlp_refuse(media_type: str, refused: Refused) -> Response | None:
    spoken = otlp.JSON if media_type == otlp.JSON else otlp.PROTOBUF
    return Response(otlp.refusal(spoken, refused.status, str(refused)), refused.status, retry_headers(refused), spoken)


def _loki_answer(media_type: str, decoded: Decoded) -> Response:
    if not decoded.rejected:
        return Response(status_code=204)
    # Like Loki: the good part was stored, and 400 says that a part was not. Its clients do not send that again.
    text = f"{decoded.rejected} of {decoded.lines} lines were not stored: {decoded.why}\n"
    return Response(text, 400, media_type="text/plain; charset=utf-8")


PROTOCOLS = {
    "/v1/logs": Protocol("otlp", otlp.decode, _otlp_answer, _otlp_refuse),
    "/loki/api/v1/push": Protocol("loki", loki.decode, _loki_answer, lambda media_type, refused: None),
}

_ANSWERS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    413: {"model": Problem, "description": "Too much in one body, or too many sources"},
    415: {"model": Problem, "description": "Another content type or encoding"},
    429: {"model": Problem, "description": "Nothing is lost if it is sent again, after Retry-After"},
}


_OTLP_ANSWERS: dict[int | str, dict[str, Any]] = {
    **_ANSWERS,
    **{
        status: {
            "description": "google.rpc.Status: code and message",
            "content": {
                otlp.JSON: {"schema": {"type": "object"}},
                otlp.PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
            },
        }
        for status in (400, 409, 413, 415, 429, 503)
    },
    200: {
        "description": "ExportLogsServiceResponse; partialSuccess counts what has no job",
        "content": {
            otlp.JSON: {"schema": {"type": "object"}},
            otlp.PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
        },
    },
}
_LOKI_ANSWERS: dict[int | str, dict[str, Any]] = {
    **_ANSWERS,
    400: {
        "description": "Some lines, or all, can never be stored",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/plain": {"schema": {"type": "string"}}},
    },
}


@router.post(
    "/v1/logs",
    summary="OTLP/HTTP logs",
    responses=_OTLP_ANSWERS,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "ExportLogsServiceRequest. Content-Encoding may be gzip, zstd or deflate.",
            "content": {
                "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {
                    "schema": {"type": "object"},
                    "example": {
                        "resourceLogs": [
                            {
                                "resource": {"attributes": [{"key": "slurm.job_id", "value": {"stringValue": "4711"}}]},
                                "scopeLogs": [{"logRecords": [{"body": {"stringValue": "step 100 | loss 2.31"}}]}],
                            }
                        ]
                    },
                },
            },
        }
    },
)
async def otlp_logs(request: Request, service: Here, who: Shipper) -> Response:
    """For OpenTelemetry's SDKs and collector. Resource and record attributes name the job: see docs/shipping.md."""
    return await _whole(PROTOCOLS["/v1/logs"], request, service, who)


_JOB = {"type": "string", "pattern": JOB_PATTERN, "maxLength": LONGEST_NAME}
_JOB_OR_NUMBER = {**_JOB, "type": ["string", "integer"], "minimum": 0}
_LOKI: dict[str, Any] = {
    "type": "object",
    "required": ["streams"],
    "properties": {
        "streams": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["stream", "values"],
                "properties": {
                    "stream": {
                        "type": "object",
                        "description": "Whose lines these are: `job`, or what else rules/identity.yaml lists",
                        "required": ["job"],
                        "properties": {"job": _JOB},
                        "additionalProperties": {"type": "string"},
                    },
                    "values": {
                        "type": "array",
                        "minItems": 1,
                        "description": "Nanoseconds since 1970, the line, and what more is known of it",
                        "items": {
                            "type": "array",
                            "prefixItems": [
                                {"type": "string", "pattern": "^[0-9]{1,19}$"},
                                {"type": "string"},
                                {"type": "object"},
                            ],
                            "minItems": 2,
                            "maxItems": 3,
                        },
                    },
                },
            },
        }
    },
}


@router.post(
    "/loki/api/v1/push",
    summary="Loki's push",
    status_code=204,
    responses=_LOKI_ANSWERS,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Protobuf in a snappy block, or JSON.",
            "content": {
                "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {
                    "schema": _LOKI,
                    "example": {
                        "streams": [
                            {
                                "stream": {"job": "run7", "rank": "3"},
                                "values": [["1726000000000000000", "step 100 | loss 2.31"]],
                            }
                        ]
                    },
                },
            },
        }
    },
)
async def loki_push(request: Request, service: Here, who: Shipper) -> Response:
    """For promtail, Alloy, Fluent Bit's loki output and client libraries. The labels of a stream name the job."""
    return await _whole(PROTOCOLS["/loki/api/v1/push"], request, service, who)


@router.post(
    "/v1/records",
    summary="JSON records",
    responses=_ANSWERS,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": False,
            "description": "One JSON object per line, or an array of them; at least one names its job. Content-Encoding may be "
            "gzip, zstd or deflate.",
            "content": {
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"message": "step 100 | loss 2.31", "SLURM_JOB_ID": "4711", "rank": 3}\n',
                },
                "application/json": {
                    "schema": {
                        "type": "array",
                        "items": {},
                        "if": {"minItems": 1},
                        "then": {"contains": {"type": "object", "required": ["job"], "properties": {"job": _JOB_OR_NUMBER}}},
                    },
                    "example": [{"log": "step 100 | loss 2.31", "job": "run7"}],
                },
            },
        }
    },
)
async def records(request: Request, service: Here, who: Shipper) -> Response:
    """For the HTTP outputs of Fluent Bit, Vector, syslog-ng and rsyslog. Fields of a record name its job, or `?job=`."""
    head = head_of(request)
    if head.media_type not in _RECORDS:
        raise Unsupported(
            f"records cannot be sent as {head.media_type[:60]!r}",
            where="Content-Type",
            remedy="use application/json or application/x-ndjson",
        )
    unpacker = Bounded(head.headers.get("content-encoding", ""), service.settings.unpacked_limit)
    stream = Records(head, service.identities)
    storing = Storing(service.ingest, service.tokens, who)
    try:
        async for chunk in request.stream():
            for piece in unpacker.feed(chunk):
                await storing.add(await aside(partial(_listed, stream.feed, piece), len(piece)))
        unpacker.end()
        await storing.add(await aside(partial(list, stream.end()), LARGEST_ARRAY))
    finally:
        await storing.settle()
    total = stream.total
    if storing.rejected:
        total.reject(storing.why or "", storing.rejected)
    if total.rejected and total.rejected >= total.lines:
        raise BadBody(f"none of {total.lines:,} records could be stored: {total.why}", remedy="see docs/shipping.md")
    content = {"accepted": total.lines - total.rejected, "rejected": total.rejected, "why": total.why or None}
    return Response(json.dumps(content), media_type="application/json")


async def _whole(protocol: Protocol, request: Request, service: Service, who: Who) -> Response:
    head = head_of(request)
    try:
        async with body_of(request, head, service) as body:
            decoded = await aside(partial(protocol.decode, head, body, service.identities), len(body))
        storing = await stored(service, who, decoded.batches)
    except Refused as refused:
        answer = protocol.refuse(head.media_type, refused)
        if answer is None:
            raise
        return answer
    if storing.rejected:
        decoded.reject(storing.why or "", storing.rejected)
    return protocol.answer(head.media_type, decoded)


def _listed(feed: Callable[[bytes], Iterable[Batch]], piece: bytes) -> list[Batch]:
    return list(feed(piece))
