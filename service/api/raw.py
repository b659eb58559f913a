"""Raw logs, if they are kept: lines from a line or a byte on, the list of sources, and a whole log as text."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from diagnose.redaction.stream import REACH, Concealer
from service.api import bodies
from service.api.bodies.common import MOST
from service.api.common import REFUSALS, Here, JobName, Limit, Number, Reader
from service.errors import Conflict, Unknown
from service.names import STORABLE, storable
from service.raw import parts
from service.raw.archive import Archive, size
from service.runtime import Service
from service.store import reading

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": bodies.Problem, "description": "Several logs or places could be meant, or the log was redacted"}
}
router = APIRouter(tags=["jobs"], responses={**REFUSALS, **_CONFLICT})
Source = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="Whose lines; may be left out where there is one only",
        pattern=STORABLE,
    ),
]
_MOST = 4 << 20
"""bytes of text in one answer"""
_BEFORE = REACH + parts.LONGEST
"""bytes before a line that show whether it belongs to a private key, and where that begins"""


@router.get("/v1/jobs/{job}/raw", response_model=bodies.RawPage, summary="Lines of the raw log, where it is kept")
async def raw(
    job: JobName,
    service: Here,
    who: Reader,
    source: Source = None,
    attempt: Number = None,
    from_line: Annotated[int | None, Query(ge=1, le=MOST, description="Counted from 1, as an editor does")] = None,
    to_line: Annotated[int | None, Query(ge=1, le=MOST)] = None,
    offset: Annotated[int | None, Query(ge=0, le=MOST, description="Instead: from the line on that holds this byte")] = None,
    limit: Limit = 200,
) -> dict[str, Any]:
    """The lines of a source from one number to another, as they came, with those that were not kept."""
    if from_line is not None and offset is not None:
        raise Conflict("from_line and offset were both given", remedy="give one of them")
    number, name, received = await place(service, job, attempt, source)
    assert service.archive is not None
    folder = service.archive.source(job, number, name)
    redact = service.settings.redact
    found = await asyncio.to_thread(page, folder, from_line, to_line, offset, limit, redact)
    if found["next_offset"] is None and found["next_line"] is None and to_line is None:
        end = await asyncio.to_thread(_end, folder)
        found["gaps"] += [{"offset": end, "end": received}] if end < received else []
    return {"job": job, "attempt": number, "source": name, **found}


@router.get("/v1/jobs/{job}/raw/sources", response_model=bodies.RawSourceList, summary="Which raw logs of a job are kept")
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
    offset: Annotated[int, Query(ge=0, le=MOST, description="Go on from this byte")] = 0,
) -> StreamingResponse:
    """Where bytes are not kept, a line says so."""
    number, name, received = await place(service, job, attempt, source)
    assert service.archive is not None
    folder, redact = service.archive.source(job, number, name), service.settings.redact
    if offset and (redact or await asyncio.to_thread(_is_redacted, folder, offset)):
        raise _redacted(folder, "ask for the whole, or for lines of it: /raw with from_line")
    return text(folder, f"{job}-{number}", redact, received, offset)


def text(folder: Path, name: str, redact: bool, received: int, offset: int = 0) -> StreamingResponse:
    """The whole log, streamed: ``received`` bytes, or a line that says which are missing.

    ``name`` has only characters that the name of a job may have.
    """
    told = {"Content-Disposition": f'attachment; filename="{name}.raw.log"'}
    return StreamingResponse(_bytes(folder, offset, redact, received), media_type="text/plain; charset=utf-8", headers=told)


def _bytes(folder: Path, offset: int, redact: bool, received: int = 0) -> Iterator[bytes]:
    concealer = Concealer()
    for one in parts.raw(folder, offset, received):
        if isinstance(one, parts.Gap):
            so_far = " so far" if one.end == received else ""
            gap = f"\n--- diagnose: bytes {one.offset} to {one.end} of this source are not kept{so_far} ---\n"
            yield concealer.rest() + gap.encode()
        elif redact and not one[0].redacted:
            yield concealer.feed(one[1])
        else:
            yield concealer.rest() + one[1]
    yield concealer.rest()


async def place(service: Service, job: str, attempt: int | None, source: str | None) -> tuple[int, str, int]:
    """(attempt, source, received bytes) of the wanted raw log. When this returns, what was accepted so far is in it."""
    storable(source, "source")
    _, number = await _fresh(service, job, attempt)
    names = await service.store.aread(
        lambda connection: {
            row["name"]: row["received"]
            for row in reading.sources(connection, reading.attempt_id(connection, job, number) or 0)
        }
    )
    if source is None and len(names) != 1:
        raise Conflict(f"the job has {len(names)} sources", where=job, remedy=f"give source; GET /v1/jobs/{job}/raw/sources")
    name = source if source is not None else next(iter(names))
    if name not in names:
        raise Unknown("the job has no such source", where=name[:80], remedy=f"GET /v1/jobs/{job}/raw/sources")
    return number, name, names[name]


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
    """Lines of a raw log as the API gives them."""
    line: int | None = from_line if from_line is not None else 1
    if offset is not None:
        frame, line = parts.place(folder, offset)
        if frame is not None and frame.redacted:
            raise _redacted(folder, "ask by from_line")
    told = (_concealed if redact else _read)(folder, line, offset or 0)
    lines: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    budget, more = _MOST, None
    for one in told:
        if isinstance(one, parts.Gap):
            gaps.append(one._asdict())
            continue
        if to_line is not None and one.line is not None and one.line > to_line:
            break
        if len(lines) >= limit or budget < 0:
            more = one
            break
        budget -= len(one.text)
        lines.append({**one._asdict(), "text": one.text.decode("utf-8", "replace").removesuffix("\r")})
    if from_line is not None and not lines and next(_uncounted(folder), None):
        raise Conflict(
            "it is not known which lines these are: the raw log begins in the middle of the source",
            where=folder.name,
            remedy="give offset instead of from_line",
        )
    return {
        "redacted": redact or any(line["offset"] is None for line in lines),
        "lines": lines,
        "gaps": gaps,
        "next_line": more.line if more is not None else None,
        "next_offset": more.offset if more is not None else None,
    }


def _end(folder: Path) -> int:
    """Up to which byte it is kept."""
    known = parts.parts(folder)
    return max((frame.end for frame in parts.frames(folder, offset=known[-1].offset)), default=0) if known else 0


def _uncounted(folder: Path) -> Iterator[parts.Frame]:
    return islice((frame for frame in parts.frames(folder) if not frame.counted), 1)


def _read(folder: Path, line: int | None, offset: int) -> Iterator[parts.Line | parts.Gap]:
    return parts.read(folder, line=line) if line is not None else parts.read(folder, offset=offset)


def _concealed(folder: Path, line: int | None, offset: int) -> Iterator[parts.Line | parts.Gap]:
    """The same without secrets. Earlier bytes are read too, because a private key may begin there."""

    def before(one: parts.Line | parts.Gap) -> bool:
        if isinstance(one, parts.Gap):
            return True
        if line is not None:
            return one.line is not None and one.line < line
        return one.offset is not None and one.offset + len(one.text) + one.cut < offset

    first = next(_read(folder, line, offset), None)
    if not isinstance(first, parts.Line) or first.offset is None:  # nothing comes before it, or it is redacted on disk
        return _without_secrets(_read(folder, line, offset))
    start = max(0, first.offset - _BEFORE)
    begin = parts.place(folder, start)[1] or line if line is not None else None
    skipped = sum(1 for _ in takewhile(before, _read(folder, begin, start)))
    return islice(_without_secrets(_read(folder, begin, start)), skipped, None)


def _without_secrets(told: Iterable[parts.Line | parts.Gap]) -> Iterator[parts.Line | parts.Gap]:
    concealer = Concealer()
    waiting: deque[parts.Line] = deque()
    tail = b""

    def ready(clear: bytes) -> Iterator[parts.Line]:
        nonlocal tail
        *whole, tail = (tail + clear).split(b"\n")
        for text in whole:
            yield waiting.popleft()._replace(text=text)

    for one in told:
        if isinstance(one, parts.Line):
            waiting.append(one)
            yield from ready(concealer.feed(one.text + b"\n"))
        else:
            yield from ready(concealer.rest())
            tail = b""
            yield one
    yield from ready(concealer.rest())


def _is_redacted(folder: Path, offset: int) -> bool:
    frame, _ = parts.place(folder, offset)
    return frame is not None and frame.redacted


def _redacted(folder: Path, remedy: str) -> Conflict:
    return Conflict(
        "secrets were removed from this log, so its bytes cannot be found by their offset", where=folder.name, remedy=remedy
    )


def _told(folder: Path) -> dict[str, Any] | None:
    """What there is of one source."""
    first = next(parts.frames(folder), None)
    known = parts.parts(folder)
    if first is None or not known:
        return None
    last = first
    for frame in parts.frames(folder, offset=known[-1].offset):
        last = frame
    return {
        "kept_from": first.offset,
        "kept_to": last.end,
        "lines": last.before + last.lines if last.counted else None,
        "stored_bytes": size(folder),
        "redacted": last.redacted,
    }
