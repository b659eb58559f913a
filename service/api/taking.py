"""Whole bodies of shippers: who sends them and for which project, read within bounds, decoded aside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from service.auth import Who, needs
from service.errors import Busy, Refused
from service.intake.batch import Batch
from service.intake.protocols import credentials
from service.intake.protocols.encodings import Bounded
from service.intake.protocols.requests import Head
from service.intake.storing import Storing
from service.runtime import Service

T = TypeVar("T")

_DECODERS = ThreadPoolExecutor(2, "decoder")
"""bodies that are decoded at one time: this takes a processor, and memory"""
_ROOM = 256 << 20
"""bytes of all bodies that are read as a whole at one time"""
_LITTLE = 64 << 10


def head_of(request: Request) -> Head:
    return Head(dict(request.query_params), dict(request.headers.items()))


_known = needs("ingest", lambda request: credentials.bearer(request.headers.get("authorization")))


async def _shipper(request: Request, who: Annotated[Who, Depends(_known)]) -> Who:
    tenant = credentials.tenant(head_of(request))
    return who if tenant is None else who.within(tenant)


Shipper = Annotated[Who, Depends(_shipper)]
"""a sender that may show its token as its protocol does, and may say for which of its projects it sends"""


async def stored(service: Service, who: Who, batches: Iterable[Batch]) -> Storing:
    """Put these on disk. What can never be stored is in the result."""
    storing = Storing(service.ingest, service.tokens, who)
    try:
        await storing.add(batches)
    finally:
        await storing.settle()
    return storing


class _Room:
    """How much memory all bodies that are read as a whole may take together."""

    def __init__(self) -> None:
        self.taken = 0


_room = _Room()


@asynccontextmanager
async def body_of(request: Request, head: Head, service: Service) -> AsyncIterator[bytes]:
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


async def aside(work: Callable[[], T], size: int) -> T:
    """Decode, in a thread if it is much, so that other requests are served meanwhile."""
    if size <= _LITTLE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_DECODERS, work)


def retry_headers(refused: Refused) -> dict[str, str]:
    return {} if refused.retry_after_s is None else {"Retry-After": str(max(1, round(refused.retry_after_s)))}
