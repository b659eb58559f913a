"""The pages for people: rendered on the server, with small scripts, and nothing from other sites.

words charts frame      numbers and times; pictures; the template engine
session page            the viewer; what all pages need
overview shift failures jobs evaluation nodes actions rules search      one module per page and its details
approval blame logs links      what an approval means; whose fault it was; kept lines as shown; links to other tools
"""

from __future__ import annotations

import asyncio
import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagnose.errors import DiagnoseError
from service.api.events import stream
from service.dashboard import actions, evaluation, failures, frame, jobs, model, nodes, overview, rules, search, session, shift
from service.dashboard.page import common_values
from service.errors import Refused, TooLarge, Unauthorised, Unknown
from service.names import check_job
from service.runtime import Service
from service.sign_in.people import People

log = logging.getLogger("diagnose.dashboard")
_BEAT = b"event: beat\ndata: {}\n\n"
"""a page must hear that nothing happens, to know that the service is there"""
_LARGEST_FORM = 1 << 20
_YEAR = "public, max-age=31536000, immutable"


def routes() -> list[Route]:
    """Where each page is."""
    return [
        Route("/", overview.show),
        Route("/shift", shift.show),
        Route("/breakdowns", shift.breakdowns),
        Route("/search", search.show),
        Route("/failures", failures.show),
        Route("/failures/{group}", failures.one),
        Route("/failures/{group}", failures.change, methods=["POST"]),
        Route("/jobs", jobs.show),
        Route("/jobs/{job}", jobs.one),
        Route("/jobs/{job}/log", jobs.log),
        Route("/jobs/{job}/ticket", jobs.ticket),
        Route("/jobs/{job}/download", jobs.download),
        Route("/jobs/{job}/raw", jobs.raw),
        Route("/jobs/{job}/raw/download", jobs.raw_download),
        Route("/jobs/{job}/evaluation", evaluation.show),
        Route("/jobs/{job}/correct", jobs.correct, methods=["POST"]),
        Route("/nodes", nodes.show),
        Route("/nodes/{node}", nodes.one),
        Route("/nodes/{node}", nodes.ask, methods=["POST"]),
        Route("/actions", actions.show),
        Route("/actions/{action}", actions.one),
        Route("/actions/{action}/decide", actions.decide, methods=["POST"]),
        Route("/rules", rules.show),
        Route("/model", model.show),
        Route("/rules/{rule}", rules.one),
        Route("/rules/{rule}", rules.decide, methods=["POST"]),
        Route("/sign-in", _sign_in),
        Route("/sign-in", _enter, methods=["POST"]),
        Route("/sign-in/begin", _begin),
        Route("/sign-in/back", _back),
        Route("/sign-out", _leave, methods=["POST"]),
        Route("/events", _events),
        Route("/assets/{name}", _asset),
    ]


def create_pages(service: Service) -> Starlette:
    """The pages, to be mounted."""
    pages = Starlette(
        routes=routes(),
        middleware=[Middleware(_Bounded)],
        exception_handlers={
            session.SignInFirst: _first_sign_in,
            DiagnoseError: _refused,
            HTTPException: _missing,
            Exception: _failed,
        },
    )
    pages.state.service = service
    pages.state.key = session.key_in(service.settings.data)
    return pages


class _Bounded:
    """What a form of a page may send: strangers send one too, to sign in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = _LARGEST_FORM

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge("the form is too large", remedy="send less")
            return message

        await self._app(scope, bounded, send)


async def _sign_in(request: Request) -> Response:
    return await _sign_in_page(request, request.query_params.get("next", ""))


async def _sign_in_page(request: Request, target: str, status: int = 200, **values: object) -> Response:
    service: Service = request.app.state.service
    people = service.sign_in.people
    button = people.button if people is not None else None
    return await _plain(request, "sign-in.html", status=status, **{"next": target, "button": button, **values})


async def _begin(request: Request) -> Response:
    return session.sent_out(request, _people(request), request.query_params.get("next", ""))


async def _back(request: Request) -> Response:
    """From the provider. The cookie is for our own pages only, so the way goes on from a page of ours."""
    arrived, keep = await session.came_back(request, _people(request))
    answer = await _plain(request, "arrived.html", name=arrived.name, target=session.inside(request, arrived.target))
    keep(answer)
    return answer


def _people(request: Request) -> People:
    service: Service = request.app.state.service
    if service.sign_in.people is None:
        raise Unknown("nobody signs in at a provider here", remedy="sign in with a token (docs/sign-in.md)")
    return service.sign_in.people


async def _enter(request: Request) -> Response:
    async with request.form(max_files=0, max_fields=5) as form:
        secret, target = str(form.get("token", "")), str(form.get("next", ""))
    try:
        return await session.signed_in(request, secret, target)
    except Unauthorised as error:
        said = {"kind": "bad", "text": f"That did not work: {error.what}."}
        return await _sign_in_page(request, target, status=401, said=said)


async def _leave(request: Request) -> Response:
    async with request.form(max_files=0, max_fields=5) as form:
        session.check_form(request, form.get("csrf"))
    return session.signed_out(request)


async def _events(request: Request) -> Response:
    """The same event stream as the API's, for a viewer who is signed in by a cookie."""
    who = session.viewer(request)
    service: Service = request.app.state.service
    said = request.headers.get("last-event-id", "")
    start = int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else None
    job = request.query_params.get("job")
    return stream(service, who, start, who.named(check_job(job)) if job else None, beat=_BEAT)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in frame.assets():
        raise Unknown("there is no such file", where=name[:80])
    return FileResponse(frame.ASSETS / name, headers={"Cache-Control": _YEAR})


async def _plain(request: Request, template: str, status: int = 200, **values: object) -> Response:
    """A page for a viewer who is not signed in."""
    prefix = str(request.scope.get("root_path", ""))
    text = await asyncio.to_thread(frame.rendered, template, prefix, {**common_values(request), **values})
    return HTMLResponse(text, status_code=status)


async def _first_sign_in(request: Request, _: Exception) -> Response:
    if request.url.path.endswith("/events"):
        return HTMLResponse("", status_code=401)  # a stream cannot follow a page
    prefix = str(request.scope.get("root_path", ""))
    wanted = request.url.path.removeprefix(prefix).lstrip("/")
    target = wanted + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(str(request.url.replace(path=f"{prefix}/sign-in", query="").include_query_params(next=target)), 303)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, DiagnoseError)
    status = error.status if isinstance(error, Refused) else 400
    title = error.what[:1].upper() + error.what[1:]
    where = f"{error.where}. " if error.where else ""
    return await _plain(request, "message.html", status=status, title=title, text=where + (error.remedy or ""))


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = "There is no such page" if error.status_code == 404 else str(error.detail)
    return await _plain(request, "message.html", status=error.status_code, title=title, text="Look at the address.")


async def _failed(request: Request, error: Exception) -> Response:
    log.error("%s", request.url.path, exc_info=error)
    return await _plain(request, "message.html", status=500, title="This page failed", text="The service's log says why.")
