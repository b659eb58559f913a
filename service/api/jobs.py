"""Jobs: what runs, what failed, why, and the kept lines."""

from __future__ import annotations

import tempfile
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Response

from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Report
from service.api import bodies
from service.api.bodies.common import MOST
from service.api.common import (
    REFUSALS,
    Admin,
    Asking,
    Before,
    Here,
    JobName,
    Limit,
    Number,
    Operator,
    Reader,
    Word,
    place,
    place_of,
)
from service.errors import Refused, Unknown
from service.learning import corpus
from service.names import STORABLE, storable
from service.runtime import Service
from service.store import reading, tasks
from service.store.diagnoses import unpacked

router = APIRouter(route_class=Asking, tags=["jobs"], responses=REFUSALS)


@router.get("/v1/jobs", response_model=bodies.JobPage, summary="Jobs, the latest first")
async def jobs(
    service: Here,
    who: Reader,
    limit: Limit = 50,
    before: Before = None,
    since: Annotated[float | None, Query(ge=0, le=1e12, description="Seen since, in seconds since 1970")] = None,
    state: Annotated[str | None, Query(pattern="^(running|ended)$")] = None,
    outcome: Annotated[str | None, Query(pattern="^(running|failed|healthy)$")] = None,
    category: Word = None,
    reason: Word = None,
    cluster: Word = None,
    user: Word = None,
    node: Word = None,
    name: Annotated[str | None, Query(max_length=200, description="A part of the name", pattern=STORABLE)] = None,
) -> dict[str, Any]:
    equal = {"state": state, "outcome": outcome, "category": category, "reason": reason, "cluster": cluster, "user": user}
    given = {column: value for column, value in equal.items() if value is not None and storable(value, column)}
    storable(name, "name")
    storable(node, "node")
    at = place(before)
    rows = await service.read(
        who,
        lambda connection: reading.jobs(
            connection,
            limit=limit,
            before=at,
            since=since,
            equal=given,
            name=name,
            node=node,
        ),
    )
    return {"jobs": rows, "next": place_of(rows[-1]) if len(rows) == limit else None}


@router.get("/v1/jobs/{job}", response_model=bodies.JobDetail, summary="A job and its attempts")
async def job(job: JobName, service: Here, who: Reader) -> dict[str, Any]:
    await service.jobs.fresh(job)
    found = await service.read(who, lambda connection: reading.job(connection, job))
    if found is None:
        raise _unknown(job)
    return found


@router.delete(
    "/v1/jobs/{job}",
    response_model=bodies.Deleted,
    summary="Delete a job and all that is kept of it",
    responses={409: {"model": bodies.Problem, "description": "It runs, an action about it is under way, or it is a label"}},
)
async def delete(
    job: JobName,
    service: Here,
    who: Admin,
    labels: Annotated[
        Literal["keep", "delete"], Query(description="delete: also if a person corrected it, with what that taught as a label")
    ] = "keep",
) -> dict[str, Any]:
    """Refused while it runs, or while an action about it is under way. The audit trail and the groups' counts stay."""
    return await service.retention.delete(job, who.name, labels=labels == "delete")


@router.get(
    "/v1/jobs/{job}/report", response_model=Report, response_model_by_alias=True, summary="What happened (diagnose.report/1)"
)
async def report(
    job: JobName,
    service: Here,
    who: Reader,
    attempt: Number = None,
    version: Annotated[
        Literal["latest", "rules"], Query(description="rules: as it was before a model was asked, if one was")
    ] = "latest",
) -> dict[str, Any]:
    """For a running job: what is known so far."""
    await service.jobs.fresh(job, attempt, report=True)
    key = await _attempt(service, job, attempt)
    found = await service.read(who, lambda connection: reading.report(connection, key))
    if found is None:
        live = await service.jobs.open(job, attempt)  # stored without a report: read it again, and diagnose
        await service.jobs.fresh(job, live.number, report=True)
        found = await service.read(who, lambda connection: reading.report(connection, key))
    if found is None:
        raise Unknown("there is no report yet", where=job, remedy="try again in a moment")
    whole: dict[str, Any] = found["report"]
    if version == "rules":
        known = await service.read(who, lambda connection: tasks.answered(connection, key))
        if known is not None and known.before is not None:
            return {**unpacked(known.before), "metrics": whole["metrics"]}
    return whole


@router.get("/v1/jobs/{job}/lines", response_model=bodies.LinePage, summary="The kept lines")
async def lines(
    job: JobName,
    service: Here,
    who: Reader,
    attempt: Number = None,
    limit: Limit = 200,
    after: Annotated[int, Query(ge=-1, le=MOST, description="`next` of the page before")] = -1,
    search: Annotated[
        str | None, Query(max_length=500, description="Lines that hold this text, in any case", pattern=STORABLE)
    ] = None,
    rank: Annotated[int | None, Query(ge=0, lt=1 << 31)] = None,
    node: Word = None,
    source: Annotated[str | None, Query(max_length=1000, pattern=STORABLE)] = None,
    rule: Word = None,
) -> dict[str, Any]:
    for text, where in ((search, "search"), (node, "node"), (source, "source"), (rule, "rule")):
        storable(text, where)
    await service.jobs.fresh(job, attempt)
    key = await _attempt(service, job, attempt)
    rows = await service.read(
        who,
        lambda connection: reading.lines(
            connection, key, limit=limit, after=after, search=search, rank=rank, node=node, source=source, rule=rule
        ),
    )
    return {"job": job, "lines": rows, "next": rows[-1]["ord"] if len(rows) == limit else None}


@router.get("/v1/jobs/{job}/series", response_model=bodies.SeriesList, summary="The job's numbers: loss, step time, ...")
async def series(job: JobName, service: Here, who: Reader, attempt: Number = None) -> dict[str, Any]:
    await service.jobs.fresh(job, attempt, report=True)
    key = await _attempt(service, job, attempt)
    return {"job": job, "series": await service.read(who, lambda connection: reading.series(connection, key))}


@router.post("/v1/jobs/{job}/corrections", response_model=bodies.Correction, status_code=201, summary="Correct a diagnosis")
async def correct(job: JobName, service: Here, who: Operator, correction: Annotated[bodies.Correct, Body()]) -> dict[str, Any]:
    """It is stored as a label, next to the diagnosis, and learned from. ``lesson`` in GET /v1/corrections says what was
    learned: a rule for its root line, or why there is none.
    """
    taxonomy = shipped_taxonomy()
    if taxonomy.category_of.get(correction.reason) != correction.category:
        raise Refused(
            f"{correction.reason!r} is not a reason under {correction.category!r}",
            remedy=f"use one of: {', '.join(sorted(taxonomy.category_of))}",
        )
    for text, where in ((correction.source, "source"), (correction.note, "note")):
        storable(text, where)
    key = await _attempt(service, job, correction.attempt)
    return await corrected(service, job, key, correction.model_dump(exclude={"attempt"}), who.name)


async def corrected(service: Service, job: str, attempt: int, values: dict[str, Any], who: str) -> dict[str, Any]:
    """Store a person's correction of an attempt, with the task to learn from it. The API and the dashboard use this."""
    now = time.time()

    def work(connection: Any) -> dict[str, Any]:
        made = reading.correct(connection, attempt, values, who, now)
        told = {"by": "person", "reason": values["reason"], "source": values["source"], "line": values["line"]}
        tasks.enter(connection, attempt, tasks.Wanted("confirm", told, f"correction/{made}"), now)
        return next(row for row in reading.corrections(connection, limit=100, attempt=attempt) if row["id"] == made)

    row = await service.store.awrite(work)
    service.learning.look()
    service.events.publish("diagnosis.corrected", job=job, attempt=row["attempt"], reason=row["reason"], who=who)
    return row


@router.get("/v1/corrections", response_model=bodies.CorrectionList, summary="What persons corrected")
async def corrections(service: Here, who: Reader, limit: Limit = 100) -> dict[str, Any]:
    return {"corrections": await service.read(who, lambda connection: reading.corrections(connection, limit=limit))}


@router.get(
    "/v1/corrections/corpus",
    summary="The corrected jobs as a corpus that diagnose eval reads",
    response_class=Response,
    responses={200: {"content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def corrected_corpus(service: Here, who: Reader) -> Response:
    """A tar file: labels.tsv, and the kept lines of each job."""

    def work(connection: Any) -> bytes:
        with tempfile.TemporaryFile() as out:
            corpus.write(connection, out)
            out.seek(0)
            return out.read()

    data = await service.read(who, work)
    named = {"Content-Disposition": 'attachment; filename="corpus.tar.gz"'}
    return Response(data, media_type="application/gzip", headers=named)


async def _attempt(service: Service, job: str, number: int | None) -> int:
    found = await service.store.aread(lambda connection: reading.attempt_id(connection, job, number))
    if found is None:
        raise _unknown(job, number)
    return found


def _unknown(job: str, number: int | None = None) -> Unknown:
    what = "there is no such job" if number is None else f"there is no attempt {number} of such a job"
    return Unknown(what, where=job, remedy="GET /v1/jobs lists what there is")
