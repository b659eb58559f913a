"""Whether the service is alive, whether it is ready, and its metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.api import nvrx
from service.api.bodies import Readiness
from service.api.common import REFUSALS, Here, Reader
from service.projects import DEFAULT

router = APIRouter(tags=["health"])
_REFUSED: dict[int | str, dict[str, Any]] = {status: REFUSALS[status] for status in (401, 403, 503)}


@router.get("/healthz", summary="The process lives")
async def healthz(request: Request) -> dict[str, Any]:
    attributions = request.app.state.attributions
    return {"status": "ok", **({} if attributions is None else nvrx.health(attributions))}


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness, "description": "Not ready"}})
async def readyz(service: Here, response: Response) -> dict[str, Any]:
    """Whether logs can be accepted and read: a probe is written to the disk and to the database.

    While the database is away, known sources are still accepted.
    """
    found = await service.probes.found()
    damage = service.scrubber.problem
    database = found.database is None and damage is None
    journal = found.disk is None and service.journal.size <= service.settings.journal_limit
    ready = service.ready and database and journal and found.scanners is None
    response.status_code = 200 if ready else 503
    if not ready:
        response.headers["Retry-After"] = "5"
    return {
        "ready": ready,
        "problems": [*found.problems, *([damage] if damage is not None else [])],
        "database": database,
        "journal": journal,
        "scanners": found.scanners is None,
        "raw_logs": None if service.archive is None else service.archive.problem is None,
        "raw_logs_problem": service.archive.problem if service.archive is not None else None,
        "lost_bytes": service.jobs.lost_bytes,
        "damaged_segments": service.journal.damaged,
        "rules": service.jobs.prepared,
        "queued_bytes": service.jobs.queued,
        "live_jobs": len(service.jobs),
        "model": service.vllm.state if service.vllm else None,
        "model_problem": service.vllm.problem if service.vllm else None,
    }


@router.get("/metrics", response_class=Response, summary="Our own numbers, for Prometheus",
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_REFUSED})  # fmt: skip
async def metrics(service: Here, who: Reader) -> Response:
    """Those of the whole service, for who has the project default; else those of the holder's projects."""
    projects = None if who.reads(DEFAULT) else who.projects
    return Response(service.telemetry.text(projects), media_type=CONTENT_TYPE_LATEST)
