"""Server-Sent Events: news at the moment it happens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from service.api.common import REFUSALS, Here, Reader
from service.auth import Who
from service.errors import Busy
from service.events import BEAT_S, KINDS, Event
from service.names import check_job
from service.projects import parted
from service.runtime import Service

router = APIRouter(tags=["events"], responses=REFUSALS)
_MOST = 500
_BEAT = b": still here\n\n"
"""a comment: programs read over it"""


@router.get(
    "/v1/events",
    response_class=StreamingResponse,
    summary="What happens, as it happens (Server-Sent Events)",
    description=f"{', '.join(f'`{kind}`' for kind in KINDS)}; the last says that events were missed: load what is shown again.",
    responses={
        200: {
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 1767323045000001\nevent: job.diagnosed\ndata: {"job": "train-7b", "reason": "hang"}\n\n',
                }
            },
        }
    },
)
async def events(
    service: Here,
    who: Reader,
    last_event_id: Annotated[str | None, Header(description="Go on after this one")] = None,
    after: Annotated[str | None, Query(max_length=20, description="The same, for who cannot set headers")] = None,
    job: Annotated[str | None, Query(max_length=200, description="Only of this job")] = None,
) -> StreamingResponse:
    said = last_event_id or after
    start = int(said) if said is not None and said.isascii() and said.isdecimal() and len(said) < 19 else None
    return stream(service, who, start, who.named(check_job(job)) if job is not None else None)


def stream(service: Service, who: Who, start: int | None, job: str | None, beat: bytes = _BEAT) -> StreamingResponse:
    """The events after number ``start``, of one job or all, for as long as the token of ``who`` is valid.

    ``beat``: what is sent when nothing was to be sent for a while.
    """
    if service.events.listeners >= _MOST:
        raise Busy("too many clients listen for events already", remedy="try again later", retry_after_s=10)
    found = _stream(service, who, start, job, beat)
    return StreamingResponse(found, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _stream(service: Service, who: Who, start: int | None, job: str | None, beat: bytes) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n" + beat
    sent = time.monotonic()
    async for event in service.events.listen(start):
        if not service.tokens.holds(who):
            return
        if event is not None and (job in (None, event.data.get("job")) or event.kind == "reset") and _seen_by(who, event):
            sent = time.monotonic()
            yield as_text(event)
        elif event is None or time.monotonic() - sent > BEAT_S:  # many events of other jobs are no news either
            sent = time.monotonic()
            yield beat


def _seen_by(who: Who, event: Event) -> bool:
    """What is of no job is the whole cluster's."""
    return event.kind == "reset" or who.reads(parted(event.data.get("job") or "")[0])


def as_text(event: Event) -> bytes:
    """One event as bytes. JSON has no line ends of its own, so data cannot break out."""
    data = json.dumps({"at": event.at, **event.data})
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode()
