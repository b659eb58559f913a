"""The routes of the NVIDIA resiliency extension's attribution service, for its launcher and its Slurm monitor.

They exist only if the operator names an allowed root. The extension's clients have no tokens, so requests from the networks
that the operator names need none. All others need one, as everywhere.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.api.common import Asking, service_of
from service.auth import sender
from service.errors import Forbidden
from service.nvrx import PRINTED, Attributions, Submission, Wrong, progressive, recommendation, result_of


class _Theirs(Asking):
    """A route whose refusals of a parameter have the extension's ``detail`` beside ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestValidationError as error:
                return _not_valid(error)

        return answered


router = APIRouter(route_class=_Theirs, tags=["nvrx"])

_WAIT_S = 50.0
"""the extension's monitor asks for at most a minute"""


_LONGEST_JOB = 1000


class Submit(BaseModel):
    """``POST /logs``."""

    model_config = ConfigDict(extra="ignore")
    log_path: str
    user: str = "unknown"
    job_id: str | None = Field(None, max_length=_LONGEST_JOB)
    cycle_id: Annotated[int, Field(strict=True, ge=0, lt=1_000_000)] | None = None
    analysis_intent: Annotated[
        Literal["track_only", "progressive", "terminal"],
        BeforeValidator(lambda said: said.strip().lower() if isinstance(said, str) else said),
    ] = "track_only"


Pretty = Annotated[bool, Query()]
Indent = Annotated[int | None, Query(ge=0, le=16)]


async def _open_to(request: Request, right: str) -> Attributions:
    """All submissions, for a request that comes from an allowed network, or has a token."""
    found: Attributions = request.app.state.attributions
    if not _is_from(request, service_of(request).settings.nvrx_from) and right not in (await sender(request)).may:
        raise Forbidden("your token may not do this", remedy=f"use one with the role {right}")
    return found


def _is_from(request: Request, networks: str) -> bool:
    try:
        address = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    return any(address in network for network in _parsed(networks))


@cache
def _parsed(networks: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(word.strip()) for word in networks.split(",") if word.strip()]


async def _sent(request: Request) -> Attributions:
    return await _open_to(request, "ingest")


async def _asked(request: Request) -> Attributions:
    return await _open_to(request, "read")


Sent = Annotated[Attributions, Depends(_sent)]
Asked = Annotated[Attributions, Depends(_asked)]


@router.post("/logs", response_model=None)
async def submit(attributions: Sent, body: Submit) -> Response:
    """Name a log: progressive when it begins, terminal when its job has failed."""
    try:
        one = attributions.submit(
            body.log_path, user=body.user, job_id=body.job_id, cycle_id=body.cycle_id, intent=body.analysis_intent
        )
    except Wrong as wrong:
        return _wrong(wrong)
    return _json(
        {
            "submitted": True,
            "normalized_path": one.path,
            "mode": "single",
            "logs_dir": None,
            "sched_restarts": 0,
            "files_analyzed": int(one.status == "completed"),
        }
    )


@router.get("/logs", response_model=None)
async def answer(
    attributions: Asked,
    log_path: Annotated[str, Query(min_length=1)],
    wait: bool = True,
    file: str | None = None,
    wl_restart: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """What is to be done about it. ``wait=false`` answers at once. A path is one attempt: nothing of it can be chosen."""
    if file is not None or wl_restart is not None:
        return _wrong(Wrong(400, "invalid_parameter", "file and wl_restart are not supported"))
    try:
        one = attributions.find(log_path)
    except Wrong as wrong:
        return _wrong(wrong)
    done = await attributions.wait(one, _WAIT_S) if wait else one.over
    return _json(await _answer(attributions, one, done=done, waited=wait))


@router.get("/print", response_model=None)
async def head(attributions: Asked, log_path: str) -> Response:
    """The beginning of a log, as text."""
    try:
        text = attributions.head(log_path).decode("utf-8", "replace")[:PRINTED]
    except Wrong as wrong:
        return _wrong(wrong)
    return Response(text, media_type="text/plain; charset=utf-8")


@router.get("/inflight", response_model=None)
async def inflight(attributions: Asked, pretty: Pretty = False, indent: Indent = None) -> Response:
    paths = attributions.in_flight
    return _json({"count": len(paths), "paths": paths}, pretty, indent)


@router.get("/jobs", response_model=None)
async def jobs(attributions: Asked, pretty: Pretty = False, indent: Indent = None) -> Response:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in attributions.submissions:
        found.setdefault(one.named_job or "unknown", []).append(
            {"cycle_id": one.cycle, "log_path": one.path, "status": one.stage, "progressive_phase": one.phase}
        )
    return _json(found, pretty, indent)


@router.get("/stats", response_model=None)
async def stats(attributions: Asked, pretty: Pretty = False, indent: Indent = None) -> Response:
    counts = attributions.counts
    agent = {
        "config": _config(),
        "attempts": counts,
        "deterministic_ready": counts["completed"],
        "route_complete": counts["completed"],
        "execution_errors": counts["failed"],
        "registry_evictions": attributions.forgotten,
        "history_record_count": len(attributions.submissions),
        "terminal_timing": attributions.last_timing,
        "progressive": progressive(attributions),
    }
    return _json({"backend": "lib", "restart_agent": agent}, pretty, indent)


def health(attributions: Attributions) -> dict[str, Any]:
    """The fields of the extension's ``/healthz``, with ours."""
    return {"backend": "lib", "issues": [], "restart_agent": {**_config(), "attempts": attributions.counts}}


def _config() -> dict[str, str]:
    from diagnose import __version__

    return {"config_id": "diagnose", "config_version": __version__, "config_fingerprint": f"diagnose-{__version__}"}


async def _answer(attributions: Attributions, one: Submission, *, done: bool, waited: bool) -> dict[str, Any]:
    report = await attributions.report(one) if one.status == "completed" else None
    said = recommendation(report, came_back=report is not None and await attributions.came_back(one))
    if one.status == "failed":
        said = {**said, "reason": one.problem or "it could not be read"}
    elif not done and waited and one.intent == "terminal":
        said = {**said, "action": "TIMEOUT", "reason": "the diagnosis takes longer; ask again"}
    return {
        "result": result_of(one, report),
        "status": one.status,
        "wl_restart": 0,
        "wl_restart_count": None,
        "fr_dump_path": None,
        "fr_analysis": None,
        "llm_merged_summary": None,
        "recommendation": said,
        "candidate_recommendation": said,
    }


def _not_valid(error: RequestValidationError) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    ours = {"error": "not_valid", "what": f"{where}: {first['msg']}", "remedy": "see /docs for what is taken here"}
    return Response(json.dumps({**ours, "detail": error.errors()}, default=str), 422, media_type="application/json")


def _wrong(wrong: Wrong) -> Response:
    content = {"error_code": wrong.code, "message": wrong.message, "details": wrong.details}
    return Response(json.dumps(content), wrong.status, media_type="application/json")


def _json(content: Any, pretty: bool = False, indent: int | None = None) -> Response:
    """In ASCII, because log text may hold lone surrogates and control characters."""
    spaces = indent if indent is not None else 2 if pretty else None
    separators = (",", ":") if spaces is None else (",", ": ")
    return Response(json.dumps(content, indent=spaces, separators=separators), media_type="application/json")
