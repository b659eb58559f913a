"""Pushes go past the router: to find their route, and through what FastAPI wraps around it, takes longer than to answer them.

The answer is the route's own, and so are the answers to errors: ``tests/service/api/test_shortcut.py`` compares both ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_BEFORE, _AFTER = "/v1/jobs/", "/logs"

Handlers = Mapping[Any, Callable[[Request, Any], Response | Awaitable[Response]]]


class Shortcut:
    """Answers ``POST /v1/jobs/{job}/logs`` as ``route`` does, and hands on everything else."""

    def __init__(self, app: ASGIApp, route: APIRoute, handlers: Handlers) -> None:
        assert (route.path, route.methods) == (f"{_BEFORE}{{job}}{_AFTER}", {"POST"})
        self._app, self._route, self._answer = app, route, route.get_route_handler()
        self._handlers = {kind: handler for kind, handler in handlers.items() if kind is not Exception}
        """what nobody expected goes on to where it is logged"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = self._job(scope)
        if job is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = self._route, {"job": job}
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except Exception as error:
            handler = next((self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers), None)
            if handler is None:
                raise
            answered = handler(request, error)
            response = answered if isinstance(answered, Response) else await answered
        await response(scope, receive, send)

    @staticmethod
    def _job(scope: Scope) -> str | None:
        """The job that the path of a push names."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return None
        path: str = scope["path"]
        if not (path.startswith(_BEFORE) and path.endswith(_AFTER)):
            return None
        job = path[len(_BEFORE) : -len(_AFTER)]
        return job if job and "/" not in job else None
