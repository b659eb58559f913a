"""The HTTP side of a service: routes, errors as JSON, and headers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from diagnose import __version__
from diagnose.errors import DiagnoseError
from service.api import (
    actions,
    document,
    elastic,
    events,
    failures,
    health,
    jobs,
    jobs_logs,
    nodes,
    nvrx,
    projects,
    raw,
    reference_page,
    rules,
    shipping,
    splunk,
    training,
    webhooks,
)
from service.api.common import Json
from service.api.shortcut import Shortcut
from service.dashboard import create_pages
from service.doors import owner_is_ours
from service.edge import Edge
from service.errors import Refused
from service.intake.sockets import ports
from service.intake.sockets.listener import Parts
from service.nvrx import Attributions
from service.runtime import Service
from service.store import away

log = logging.getLogger("diagnose.app")

ROUTERS = (
    jobs_logs.pushes,
    jobs_logs.router,
    shipping.router,
    splunk.router,
    elastic.router,
    training.router,
    jobs.router,
    raw.router,
    failures.router,
    projects.router,
    nodes.told_of,
    nodes.router,
    actions.router,
    rules.router,
    events.router,
    webhooks.router,
    health.router,
)


def create_app(service: Service) -> FastAPI:
    """The application around ``service``."""

    settings = service.settings
    attributions = Attributions(service, settings.nvrx_root) if settings.nvrx_root is not None else None
    sockets = ports.wanted(
        Parts(settings, service.ingest, service.tokens, service.identities, service.telemetry, owner_is_ours)
    )

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with service.vllm or nullcontext():
            try:
                await service.start()
            except SQLAlchemyError as error:
                service.scrubber.note(error)
                raise
            if attributions is not None:
                attributions.start()
            try:
                for port in sockets:
                    await port.start()
                yield
            finally:
                for port in sockets:
                    await port.stop()
                if attributions is not None:
                    await attributions.stop()
                await service.stop()

    app = FastAPI(
        title="diagnose",
        version=__version__,
        description="Log diagnosis for GPU clusters that train large models. Times are seconds since 1970, UTC.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        root_path=settings.root_path,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.service = service
    for router in ROUTERS:
        _include(app, router)
    app.state.attributions = attributions
    if attributions is not None:
        _include(app, nvrx.router)
    document.add(app)
    reference_page.add(app)
    app.add_api_route("/", lambda: RedirectResponse(f"{service.settings.root_path}/ui/"), include_in_schema=False)
    app.mount("/ui", create_pages(service))
    app.add_exception_handler(DiagnoseError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(SQLAlchemyError, _database)
    app.add_exception_handler(Exception, _failed)
    [push] = (route for route in jobs_logs.pushes.routes if isinstance(route, APIRoute))
    app.add_middleware(Shortcut, route=push, handlers=app.exception_handlers)
    app.add_middleware(Edge, settings=settings, telemetry=service.telemetry)
    if settings.trusted_proxies:  # the outermost: everything else sees the scheme and the client that it sets
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=settings.trusted_proxies)
    return app


def _include(app: FastAPI, router: APIRouter) -> None:
    """All routes of ``router``, as they are.

    ``include_router`` would make each of them anew, for a prefix and for dependencies that it could add: a quarter of a second
    of each start.
    """
    app.router.routes.extend(router.routes)


def _answer(
    status: int, error: str, what: str, remedy: str | None = None, headers: dict[str, str] | None = None, **more: Any
) -> JSONResponse:
    content = json.loads(json.dumps({"error": error, "what": what, "remedy": remedy, **more}, default=str))
    return Json(content, status_code=status, headers=headers)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DiagnoseError)
    if not isinstance(error, Refused):
        return _answer(400, "bad_request", str(error), error.remedy)
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    what = f"{error.where}: {error.what}" if error.where else error.what
    return _answer(error.status, error.error, what, error.remedy, headers, **error.fields)


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    allowed = _allowed(request)
    if request.method not in allowed:  # the address is a route of its own, and this was taken for one with a parameter
        return _answer(405, "method_not_allowed", "Method Not Allowed", "see /docs", {"Allow": ", ".join(allowed)})
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _answer(422, "not_valid", f"{where}: {first['msg']}", "see /docs for what is taken here")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    names = {404: "not_found", 405: "method_not_allowed"}
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request)) or headers.get("Allow", "")
    return _answer(error.status_code, names.get(error.status_code, "refused"), str(error.detail), "see /docs", headers)


def _allowed(request: Request) -> list[str]:
    """All methods of an address: each of its routes knows only its own."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    routers = ROUTERS if request.app.state.attributions is None else (*ROUTERS, nvrx.router)
    routes = [one for router in routers for one in router.routes if isinstance(one, APIRoute)]
    literal = [one for one in routes if one.path == path]
    found = literal or [one for one in routes if one.path_regex.match(path)]
    return sorted({method for one in found for method in one.methods or ()})


async def _gone(_: Request, error: Exception) -> JSONResponse:
    """The client went away in the middle of its body. What came before is stored, and nobody reads this."""
    return _answer(400, "bad_body", "the body was cut off")


async def _database(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SQLAlchemyError)
    service: Service = request.app.state.service
    if service.scrubber.note(error):
        return _answer(503, "unavailable", "the database is damaged", "see /readyz for what to do", {"Retry-After": "60"})
    if away(error):
        return _answer(503, "unavailable", "the database does not answer", "try again", {"Retry-After": "2"})
    return await _failed(request, error)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _answer(500, "internal", "the service failed at this", "look at its log; nothing that was accepted is lost")
