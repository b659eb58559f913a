"""Raw logs, where they are kept: lines of a source from a line or a byte on, what there is, and the whole as text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from service import rawlog
from service.api import shapes
from service.api.common import REFUSALS, Here, JobName, Limit, Number, Reader, storable
from service.archive import Archive, size
from service.concealment import conceal
from service.errors import Conflict, Refused, Unknown
from service.service import Service
from service.store import reading

router = APIRouter(tags=["jobs"], responses=REFUSALS)
Source = Annotated[str | None, Query(max_length=1000, description="Whose lines; may be left out where there is one only")]
_MOST = 4 << 20
"""bytes of text in one answer"""


@router.get("/v1/jobs/{job}/raw", response_model=shapes.RawPage, summary="Lines of the raw log, where it is kept")
async def raw(
    job: JobName,
    service: Here,
    who: Reader,
    source: Source = None,
    attempt: Number = None,
    from_line: Annotated[int | None, Query(ge=1, lt=1 << 62, description="Counted from 1, as an editor does")] = None,
    to_line: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    offset: Annotated[int | None, Query(ge=0, lt=1 << 62, description="Instead: from the line on that holds this byte")] = None,
    limit: Limit = 200,
) -> dict[str, Any]:
    """Where lines of the compressed log are missing, these are they: lines a to b of a source."""
    if from_line is not None and offset is not None:
        raise Refused("a line and a byte were given", remedy="give from_line or offset")
    number, name = await place(service, job, attempt, source)
    assert service.archive is not None
    folder = service.archive.source(job, number, name)
    redact = service.settings.redact
    found = await asyncio.to_thread(page, folder, from_line, to_line, offset, limit, redact)
    return {"job": job, "attempt": number, "source": name, **found}


@router.get("/v1/jobs/{job}/raw/sources", response_model=shapes.RawSourceList, summary="Which raw logs of a job are kept")
async def sources(job: JobName, service: Here, who: Reader, attempt: Number = None) -> dict[str, Any]:
    archive, number = await _fresh(service, job, attempt)
    rows = await service.store.aread(
        lambda connection: reading.sources(connection, reading.attempt_id(connection, job, number) or 0)
    )

    def kept() -> list[dict[str, Any]]:
        found = []
        for row in rows:
            if (told := _told(archive.source(job, number, row["name"]))) is not None:
                found.append({**row, "source": row["name"], **told})
        return found

    return {"job": job, "attempt": number, "sources": await asyncio.to_thread(kept)}


@router.get(
    "/v1/jobs/{job}/raw/download",
    summary="The raw log of a source as it came",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def download(
    job: JobName,
    service: Here,
    who: Reader,
    source: Source = None,
    attempt: Number = None,
    offset: Annotated[int, Query(ge=0, lt=1 << 62, description="Go on from this byte")] = 0,
) -> StreamingResponse:
    """Where bytes are not kept, a line says so."""
    number, name = await place(service, job, attempt, source)
    assert service.archive is not None
    return text(service, service.archive.source(job, number, name), f"{job}-{number}", offset)


def text(service: Service, folder: Path, name: str, offset: int = 0) -> StreamingResponse:
    """The whole, streamed. ``name``: of characters that a job's name may have."""
    if offset:
        _unredacted(folder, offset)
    told = {"Content-Disposition": f'attachment; filename="{name}.raw.log"'}
    return StreamingResponse(
        _bytes(folder, offset, service.settings.redact), media_type="text/plain; charset=utf-8", headers=told
    )


def _bytes(folder: Path, offset: int, redact: bool) -> Iterator[bytes]:
    for one in rawlog.raw(folder, offset):
        if isinstance(one, rawlog.Gap):
            yield f"\n--- diagnose: bytes {one.offset} to {one.end} of this source are not kept ---\n".encode()
        else:
            frame, data = one
            yield conceal(data) if redact and not frame.redacted else data


async def place(service: Service, job: str, attempt: int | None, source: str | None) -> tuple[int, str]:
    """(attempt, source) whose raw log is asked for; what was accepted of it is in it by now."""
    storable(source, "source")
    _, number = await _fresh(service, job, attempt)
    names = await service.store.aread(
        lambda connection: [
            row["name"] for row in reading.sources(connection, reading.attempt_id(connection, job, number) or 0)
        ]
    )
    if source is None and len(names) != 1:
        raise Refused(f"the job has {len(names)} sources", where=job, remedy=f"give source; GET /v1/jobs/{job}/raw/sources")
    name = source if source is not None else names[0]
    if name not in names:
        raise Unknown("the job has no such source", where=name[:80], remedy=f"GET /v1/jobs/{job}/raw/sources")
    return number, name


async def _fresh(service: Service, job: str, attempt: int | None) -> tuple[Archive, int]:
    if service.archive is None:
        raise Unknown("raw logs are not kept here", where=job, remedy="start the service with --raw-logs DIR")
    await service.jobs.fresh(job, attempt)
    number = await service.store.aread(lambda connection: reading.attempt_number(connection, job, attempt))
    if number is None:
        raise Unknown("there is no such job, or no such attempt of it", where=job, remedy="GET /v1/jobs lists what there is")
    await service.archive.fresh(job, number)
    return service.archive, number


def page(
    folder: Path, from_line: int | None, to_line: int | None, offset: int | None, limit: int, redact: bool
) -> dict[str, Any]:
    """Lines of a raw log as the API tells them."""
    line: int | None = from_line if from_line is not None else 1
    if offset is not None:
        frame, line = rawlog.place(folder, offset)
        if frame is not None and frame.redacted:
            raise _redacted(folder)
    told = rawlog.read(folder, line=line) if line is not None else rawlog.read(folder, offset=offset or 0)
    lines: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    budget, more = _MOST, None
    for one in told:
        if isinstance(one, rawlog.Gap):
            gaps.append(one._asdict())
            continue
        if to_line is not None and one.line is not None and one.line > to_line:
            break
        if len(lines) >= limit or budget < 0:
            more = one
            break
        shown = conceal(one.text) if redact else one.text
        budget -= len(shown)
        lines.append({**one._asdict(), "text": shown.decode("utf-8", "replace").removesuffix("\r")})
    if from_line is not None and not lines and next(_uncounted(folder), None):
        raise Conflict(
            "it is not known which lines these are: the raw log begins in the middle of the source",
            where=folder.name,
            remedy="ask by offset",
        )
    return {
        "redacted": redact or any(line["offset"] is None for line in lines),
        "lines": lines,
        "gaps": gaps,
        "next_line": more.line if more is not None else None,
        "next_offset": more.offset if more is not None else None,
    }


def _uncounted(folder: Path) -> Iterator[rawlog.Frame]:
    return islice((frame for frame in rawlog.frames(folder) if not frame.counted), 1)


def _unredacted(folder: Path, offset: int) -> None:
    frame, _ = rawlog.place(folder, offset)
    if frame is not None and frame.redacted:
        raise _redacted(folder)


def _redacted(folder: Path) -> Conflict:
    return Conflict(
        "secrets were taken out of this log: its bytes are not where they were", where=folder.name, remedy="ask by from_line"
    )


def _told(folder: Path) -> dict[str, Any] | None:
    """What is there of one source."""
    first = next(rawlog.frames(folder), None)
    known = rawlog.parts(folder)
    if first is None or not known:
        return None
    last = first
    for frame in rawlog.frames(folder, offset=known[-1].offset):
        last = frame
    return {
        "kept_from": first.offset,
        "kept_to": last.end,
        "lines": last.before + last.lines if last.counted else None,
        "stored_bytes": size(folder),
        "redacted": last.redacted,
    }
