"""The routes of shippers: OTLP/HTTP logs, Loki's push, JSON records. 2xx means that it is on disk.

Each protocol has its own way to say what could not be stored. 429 and 5xx always mean that the sender must send again, other
4xx that it must not.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from service.api.bodies import Problem
from service.api.common import REFUSALS, Here, Sender
from service.auth import Who
from service.errors import BadBody, Busy, Refused, Unavailable, Unsupported
from service.intake.batch import Accepted, Batch
from service.intake.protocols import loki, otlp
from service.intake.protocols.encodings import Bounded
from service.intake.protocols.identity import Identities
from service.intake.protocols.records import LARGEST_ARRAY, Records
from service.intake.protocols.requests import Decoded, Head
from service.names import check_job
from service.runtime import Service

T = TypeVar("T")
router = APIRouter(tags=["shippers"])

_IN_FLIGHT = 16
_WAIT_S = 5.0
_DECODERS = ThreadPoolExecutor(2, "decoder")
"""bodies that are decoded at one time: this takes a processor, and memory"""
_ROOM = 256 << 20
"""bytes of all bodies that are read as a whole at one time"""
_RECORDS = ("", "application/json", "application/x-ndjson", "application/jsonl", "application/x-jsonlines", "text/plain")
_LITTLE = 64 << 10


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
    return Response(otlp.refusal(spoken, refused.status, str(refused)), refused.status, _headers(refused), spoken)


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
async def otlp_logs(request: Request, service: Here, who: Sender) -> Response:
    """For OpenTelemetry's SDKs and collector. Resource and record attributes name the job: see docs/shipping.md."""
    return await _whole(PROTOCOLS["/v1/logs"], request, service, who)


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
                    "schema": {"type": "object"},
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
async def loki_push(request: Request, service: Here, who: Sender) -> Response:
    """For promtail, Alloy, Fluent Bit's loki output and client libraries. The labels of a stream name the job."""
    return await _whole(PROTOCOLS["/loki/api/v1/push"], request, service, who)


@router.post(
    "/v1/records",
    summary="JSON records",
    responses=_ANSWERS,
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "One JSON object per line, or an array of them. Content-Encoding may be gzip, zstd or deflate.",
            "content": {
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"message": "step 100 | loss 2.31", "SLURM_JOB_ID": "4711", "rank": 3}\n',
                },
                "application/json": {
                    "schema": {"type": "array", "items": {"type": "object"}},
                    "example": [{"log": "step 100 | loss 2.31", "job": "run7"}],
                },
            },
        }
    },
)
async def records(request: Request, service: Here, who: Sender) -> Response:
    """For the HTTP outputs of Fluent Bit, Vector, syslog-ng and rsyslog. Fields of a record name its job, or `?job=`."""
    head = _head(request)
    if head.media_type not in _RECORDS:
        raise Unsupported(
            f"records cannot be sent as {head.media_type[:60]!r}",
            where="Content-Type",
            remedy="use application/json or application/x-ndjson",
        )
    unpacker = Bounded(head.headers.get("content-encoding", ""), service.settings.unpacked_limit)
    stream = Records(head, service.identities)
    storing = _Storing(service, who)
    try:
        async for chunk in request.stream():
            for piece in unpacker.feed(chunk):
                await storing.add(await _aside(partial(_listed, stream.feed, piece), len(piece)))
        unpacker.end()
        await storing.add(await _aside(partial(list, stream.end()), LARGEST_ARRAY))
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
    head = _head(request)
    try:
        async with _body(request, head, service) as body:
            decoded = await _aside(partial(protocol.decode, head, body, service.identities), len(body))
        storing = _Storing(service, who)
        try:
            await storing.add(decoded.batches)
        finally:
            await storing.settle()
    except Refused as refused:
        answer = protocol.refuse(head.media_type, refused)
        if answer is None:
            raise
        return answer
    if storing.rejected:
        decoded.reject(storing.why or "", storing.rejected)
    return protocol.answer(head.media_type, decoded)


def _head(request: Request) -> Head:
    return Head(dict(request.query_params), dict(request.headers.items()))


class _Room:
    """How much memory all bodies that are read as a whole may take together."""

    def __init__(self) -> None:
        self.taken = 0


_room = _Room()


@asynccontextmanager
async def _body(request: Request, head: Head, service: Service) -> AsyncIterator[bytes]:
    """The unpacked body. Its room is given back at the end."""
    unpacker = Bounded(head.headers.get("content-encoding", ""), service.settings.body_limit)
    body, taken = bytearray(), 0
    try:
        async for chunk in request.stream():
            for piece in unpacker.feed(chunk):
                if _room.taken + len(piece) > _ROOM:
                    raise Busy("too many bodies are being read at once", remedy="send it again", retry_after_s=1)
                _room.taken += len(piece)
                taken += len(piece)
                body += piece
        unpacker.end()
        yield bytes(body)
    finally:
        _room.taken -= taken


async def _aside(work: Callable[[], T], size: int) -> T:
    """Decode, in a thread if it is much, so that other requests are served meanwhile."""
    if size <= _LITTLE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_DECODERS, work)


def _listed(feed: Callable[[bytes], Iterable[Batch]], piece: bytes) -> list[Batch]:
    return list(feed(piece))


def _headers(refused: Refused) -> dict[str, str]:
    return {} if refused.retry_after_s is None else {"Retry-After": str(max(1, round(refused.retry_after_s)))}


class _Storing:
    """Batches on their way to disk, in order, several at a time. One that can never be stored does not hold up the others."""

    def __init__(self, service: Service, who: Who) -> None:
        self._service, self._who = service, who
        self._begun: deque[tuple[Batch, Awaitable[Accepted]]] = deque()
        self.rejected = 0
        """lines"""
        self.why: str | None = None

    async def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._service.tokens.spend(self._who, len(batch.data))
            try:
                job = self._who.named(check_job(batch.job))
                batch = batch if job == batch.job else replace(batch, job=job)
                self._begun.append((batch, await self._service.ingest.begin(batch, self._who.grant, wait_s=_WAIT_S)))
            except Refused as refused:
                self._reject(batch, refused)
            while len(self._begun) > _IN_FLIGHT:
                await self._settle_first()

    async def settle(self) -> None:
        """Wait until everything is on disk or was refused."""
        later: Refused | None = None
        while self._begun:
            try:
                await self._settle_first()
            except Refused as refused:
                later = refused
        if later is not None:
            raise later

    async def _settle_first(self) -> None:
        batch, one = self._begun.popleft()
        try:
            await one
        except Refused as refused:
            self._reject(batch, refused)

    def _reject(self, batch: Batch, refused: Refused) -> None:
        if isinstance(refused, Busy | Unavailable):
            raise refused  # all of it is sent again, and its key shows what was stored
        self.rejected += batch.data.count(b"\n") or 1
        self.why = self.why or str(refused)
