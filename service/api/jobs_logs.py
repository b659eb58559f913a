"""Receives logs, as bytes or as one JSON record per line, whole or in pieces; and the end of a job."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from service.api.bodies import Finish, Finished, Problem, Sources, Taken
from service.api.common import REFUSALS, Asking, Here, JobName, Number, Sender, Straight
from service.auth import Who
from service.errors import BadBody, Refused, Unknown, Unsupported
from service.intake.batch import Accepted, Batch
from service.intake.protocols.encodings import Bounded
from service.intake.protocols.plain import Plain
from service.intake.protocols.records import Records
from service.intake.protocols.requests import Decoded, Head
from service.live.stream import End
from service.names import SOURCE_PATTERN
from service.runtime import Service
from service.store import reading

router = APIRouter(route_class=Asking, tags=["logs"])
pushes = APIRouter(tags=["logs"], route_class=Straight)

_IN_FLIGHT = 16
"""pieces of one body that may be on their way to disk"""
_WAIT_S = 30.0
_QUIET_S = 0.05
_PLAIN = ("", "text/plain", "application/octet-stream", "application/x-www-form-urlencoded")
"""the last one is the default of curl --data-binary"""
_RECORDS = ("application/x-ndjson", "application/jsonl", "application/json-lines", "application/jsonlines", "application/json")

_parameters: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
    for name, text, schema in (
        ("source", "Names the stream of lines: a file, a pod, a rank. `log` if it is not given",
         {"type": "string", "maxLength": 1000, "pattern": SOURCE_PATTERN, "examples": ["rank0.log"]}),
        ("rank", "The process that writes it", {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}),
        ("node", "The machine it runs on",
         {"type": "string", "maxLength": 200, "pattern": SOURCE_PATTERN, "examples": ["gpu-17"]}),
        ("attempt", "The run of this job; the latest, or 1, if it is not given",
         {"type": "integer", "minimum": 0, "maximum": 1_000_000}),
        ("offset", "Where this body begins in the source, in bytes (unpacked). With it, a retry never duplicates",
         {"type": "integer", "minimum": 0}),
        ("key", "Without offset: names this body, so that a retry within ten minutes is noticed",
         {"type": "string", "maxLength": 256}),
    )
]  # fmt: skip


@pushes.post(
    "/v1/jobs/{job}/logs",
    response_model=Taken,
    summary="Send log lines",
    responses={
        **REFUSALS,
        409: {
            "model": Problem,
            "description": "Bytes are missing before this body (`expected_offset`), or another writes here",
        },
        413: {"model": Problem, "description": "Too much in one body, or too many sources"},
        415: {"model": Problem, "description": "Another content type or encoding than those below"},
        429: {"model": Problem, "description": "Come back later (Retry-After): `stored` says how much was taken"},
    },
    openapi_extra={
        "parameters": _parameters,
        "requestBody": {
            "required": False,
            "description": "Streaming is welcome. Content-Encoding may be gzip, zstd or deflate.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                "text/plain": {
                    "schema": {},
                    "example": "step 100 | loss 2.31\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n",
                },
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"message": "step 100 | loss 2.31", "rank": 3, "node": "gpu-17"}\n',
                },
            },
        },
    },
)
async def push(job: JobName, request: Request, service: Here, who: Sender) -> dict[str, Any]:
    """2xx means that it is on disk. A log that is still written may be streamed: each piece is taken in as it comes.

    Every parameter may also be a header: `X-Diagnose-Source: rank0.log`. Labels of the job (user, cluster, gpus, framework)
    go as `label.user=kim` or `X-Diagnose-Label-User: kim`.
    """
    head = Head(dict(request.query_params), dict(request.headers.items()))
    unpacker = Bounded(head.headers.get("content-encoding", ""), service.settings.unpacked_limit)
    body = _body_of(job, head, service)
    pushing = _Pushing(service, who)
    try:
        async for chunk in _chunks(request):
            if chunk is None:
                await pushing.add(body.flush())
                continue
            for piece in unpacker.feed(chunk):
                await pushing.add(body.feed(piece))
        try:
            unpacker.end()
        finally:
            await pushing.add(body.end())
        if not pushing.any:
            await pushing.add(body.nothing())
        await pushing.settle(0)
    except Refused as refused:
        await pushing.settle_quietly()
        refused.fields = {**refused.fields, "stored": pushing.stored, "next_offset": pushing.next_offset}
        raise
    accepted = pushing.last
    assert accepted is not None
    return {
        "job": job,
        "attempt": accepted.attempt,
        "source": pushing.source,
        "next_offset": accepted.next_offset,
        "received": pushing.stored,
        "duplicate": pushing.duplicates == pushing.count,
        "rejected": body.total.rejected,
        "why": body.total.why,
    }


class _Plain:
    """Raw bytes of one source."""

    def __init__(self, job: str, head: Head) -> None:
        self._plain = Plain(job, head)

    def feed(self, data: bytes) -> Iterator[Batch]:
        return self._plain.feed(data)

    def flush(self) -> Iterator[Batch]:
        return self._plain.flush()

    def end(self) -> Iterator[Batch]:
        return self._plain.flush()

    def nothing(self) -> Iterator[Batch]:
        yield self._plain.empty()

    total = Decoded([])


class _Records:
    """One JSON record per line, or an array of them."""

    def __init__(self, job: str, head: Head, service: Service) -> None:
        self._records = Records(head, service.identities, job)
        self._plain = Plain(job, head)

    def feed(self, data: bytes) -> Iterator[Batch]:
        return self._records.feed(data)

    def flush(self) -> Iterator[Batch]:
        return self._records.flush()

    def end(self) -> Iterator[Batch]:
        return self._records.end()

    def nothing(self) -> Iterator[Batch]:
        if self._records.total.rejected:
            raise BadBody(f"no record could be read: {self._records.total.why}", remedy="send one JSON object per line")
        yield self._plain.empty()

    @property
    def total(self) -> Decoded:
        return self._records.total


def _body_of(job: str, head: Head, service: Service) -> _Plain | _Records:
    if head.media_type in _PLAIN:
        return _Plain(job, head)
    if head.media_type in _RECORDS:
        return _Records(job, head, service)
    raise Unsupported(
        f"logs cannot be sent as {head.media_type[:60]!r}",
        where="Content-Type",
        remedy="send text/plain, or application/x-ndjson with one JSON object per line",
    )


class _Pushing:
    """Batches of one body on their way to disk, in order, several at a time."""

    def __init__(self, service: Service, who: Who) -> None:
        self._service, self._who = service, who
        self._begun: deque[tuple[int, Awaitable[Accepted]]] = deque()
        self.last: Accepted | None = None
        self.source = ""
        self.stored = self.count = self.duplicates = 0

    @property
    def any(self) -> bool:
        return self.last is not None or bool(self._begun)

    @property
    def next_offset(self) -> int | None:
        return self.last.next_offset if self.last is not None else None

    async def add(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            self._service.tokens.spend(self._who, len(batch.data))
            self.source = batch.source
            # The first piece of a body is refused at once if queues are full. Later ones wait, which slows the sender down.
            wait_s = _WAIT_S if self.any else 0.0
            self._begun.append((len(batch.data), await self._service.ingest.begin(batch, self._who.grant, wait_s=wait_s)))
            await self.settle(_IN_FLIGHT)

    async def settle(self, most: int) -> None:
        """Wait until at most so many are on their way."""
        while len(self._begun) > most:
            size, one = self._begun.popleft()
            self.last = await one
            self.count += 1
            self.stored += size
            self.duplicates += self.last.duplicate

    async def settle_quietly(self) -> None:
        """After a refusal: what was on its way to disk before it still counts."""
        while self._begun:
            try:
                await self.settle(0)
            except Refused:
                continue


async def _chunks(request: Request) -> AsyncIterator[bytes | None]:
    """The body as it comes; None if nothing came for a moment."""
    stream = request.stream().__aiter__()
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and len(length) < 8:  # short, and almost here: no need to look at the clock
        async for chunk in stream:
            yield chunk
        return
    waiting: asyncio.Future[bytes] | None = None
    idle = True
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(stream))
            if not idle:
                done, _ = await asyncio.wait((waiting,), timeout=_QUIET_S)
                if not done:
                    idle = True
                    yield None
                    continue
            try:
                chunk = await waiting
            except StopAsyncIteration:
                waiting = None
                return
            waiting = None
            if chunk:
                idle = False
                yield chunk
    finally:
        if waiting is not None:
            waiting.cancel()


@router.post(
    "/v1/jobs/{job}/end",
    response_model=Finished,
    summary="Say that a job has ended",
    responses={**REFUSALS, 429: {"model": Problem}},
)
async def finish(job: JobName, service: Here, who: Sender, end: Annotated[Finish, Body()]) -> dict[str, Any]:
    """The diagnosis is made at once. Lines that come later are still read, and it is made again."""
    now = time.time()
    at = end.at if end.at is not None and end.at <= now + 60 else now
    number = await service.ingest.finish(job, end.attempt, End("exit", at, end.exit_code, end.signal, end.state), who.grant)
    return {"job": job, "attempt": number}


@router.get("/v1/jobs/{job}/sources", response_model=Sources, summary="How far each source was received", responses=REFUSALS)
async def sources(job: JobName, service: Here, who: Sender, attempt: Number = None) -> dict[str, Any]:
    """For senders that resume: send each source from `received` on."""
    found = await service.store.aread(lambda connection: reading.attempt_id(connection, job, attempt))
    if found is None:
        raise Unknown("there is no such job or attempt", where=job, remedy="nothing was received: send from offset 0")
    rows = await service.store.aread(lambda connection: reading.sources(connection, found))
    live = await service.ingest.received(job, attempt)
    known = {row["name"]: row for row in rows}
    for name, stream in live.items():
        definition = stream.definition
        known[name] = {
            "name": name,
            "rank": definition.rank,
            "node": definition.node,
            "received": stream.durable,
            "last_seen": stream.last_seen,
            "missing": known[name]["missing"] if name in known else [],
        }
    return {"job": job, "attempt": attempt, "sources": list(known.values())}
