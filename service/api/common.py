"""What the routes share: the service, rights, and the place in a list."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from service.api.bodies import Problem
from service.auth import Who, holder, needs, sender
from service.errors import BadName, TooLarge
from service.names import JOB_PATTERN, LONGEST_NAME, STORABLE, check_job
from service.runtime import Service

Reader = Annotated[Who, Depends(needs("read"))]
Operator = Annotated[Who, Depends(needs("operate"))]
Admin = Annotated[Who, Depends(needs("admin"))]
Sender = Annotated[Who, Depends(needs("ingest"))]


def service_of(request: Request) -> Service:
    """The service that answers."""
    found: Service = request.app.state.service
    return found


async def _here(request: Request) -> Service:
    # Dependencies are coroutines, although they wait for nothing: FastAPI would run others in threads, three for each request.
    return service_of(request)


Here = Annotated[Service, Depends(_here)]


async def job_name(
    request: Request,
    job: Annotated[
        str,
        Path(
            description=f"The job's name, or PROJECT~NAME: up to {LONGEST_NAME} letters, digits and `_ . : @ + = , [ ] -`",
            examples=["train-7b-8812"],
            max_length=LONGEST_NAME,
            json_schema_extra={"pattern": JOB_PATTERN, "minLength": 1},
        ),
    ],
) -> str:
    """A job by the name that the service knows it by: of a project that the sender has."""
    who = await sender(request)
    return who.named(check_job(job))


JobName = Annotated[str, Depends(job_name)]


class Json(JSONResponse):
    """JSON in ASCII, because log text may hold lone surrogates, which UTF-8 cannot express."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


class Straight(APIRoute):
    """The route of ``endpoint(job, request, service, who)``, for senders. FastAPI documents it but does not call it.

    To resolve its dependencies and to check its answer would take FastAPI longer than it takes to accept a push.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            who = await holder(request, "ingest")
            return Json(await endpoint(who.named(check_job(request.path_params["job"])), request, service_of(request), who))

        return answer


class Asking(APIRoute):
    """A route with a JSON body, which is read when its sender is known, and within bounds.

    FastAPI reads and parses a whole body before it looks at who sends it: a stranger's 200 MB once stood everybody still for
    minutes.
    """

    largest = 4 << 20
    """bytes"""
    most_values = 400_000
    """by the commas and opening brackets, also those in strings: a value takes far more memory than its bytes"""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer
        first = [one.call for one in _all(self.dependant) if one.call is not None and _asks_the_request_alone(one)]

        async def asked_first(request: Request) -> Response:
            for asks in first:
                await asks(request)
            await self._read(request)
            return await answer(request)

        return asked_first

    async def _read(self, request: Request) -> None:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.largest:
                raise TooLarge(f"the body has more than {self.largest >> 20} MiB", remedy="send less at once")
        if sum(map(body.count, (b"{", b"[", b","))) > self.most_values:
            raise TooLarge(f"the body has more than {self.most_values:,} values", remedy="send less at once")
        request._body = bytes(body)  # where Starlette keeps a body that was read


class AskingMuch(Asking):
    """The same for what is known to be large."""

    largest = 64 << 20
    most_values = 2_000_000


def _all(dependant: Dependant) -> Iterator[Dependant]:
    for one in dependant.dependencies:
        yield from _all(one)
        yield one


def _asks_the_request_alone(dependant: Dependant) -> bool:
    """Whether it needs nothing else of FastAPI."""
    known = inspect.signature(dependant.call).parameters if dependant.call is not None else {}
    return len(known) == 1 and dependant.request_param_name in known and inspect.iscoroutinefunction(dependant.call)


Number = Annotated[int | None, Query(ge=0, le=1_000_000, description="The attempt; the latest if it is not given")]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most")]
Before = Annotated[
    str | None,
    Query(
        max_length=60,
        description="`next` of the page before",
        json_schema_extra={"pattern": r"^[0-9]{1,10}(\.[0-9]{1,6})?_[0-9]{1,15}$"},
    ),
]
Word = Annotated[str | None, Query(max_length=200, pattern=STORABLE)]
OfJob = Annotated[str | None, Query(max_length=LONGEST_NAME, json_schema_extra={"pattern": JOB_PATTERN})]

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request is not well formed"},
    401: {"model": Problem, "description": "No token, or not a valid one"},
    403: {"model": Problem, "description": "The token's role does not suffice"},
    404: {"model": Problem, "description": "There is no such thing"},
    413: {"model": Problem, "description": "The body is too large, or has too many values"},
    422: {"model": Problem, "description": "A parameter is out of its bounds"},
    503: {"model": Problem, "description": "The database is away, or the service starts or stops"},
}


def place_of(row: dict[str, Any]) -> str:
    """Where a page ends."""
    return f"{row['last_seen']!r}_{row['id']}"


def place(text: str | None) -> tuple[float, int] | None:
    """Where a page begins."""
    if text is None:
        return None
    when, _, which = text.partition("_")
    try:
        found = float(when), int(which)
    except ValueError:
        found = float("nan"), 0
    if not 0 <= found[0] < 1e12 or not 0 <= found[1] < 1 << 62:
        raise BadName("this is not a place in the list", where=text[:60], remedy="give `next` of the page before, unchanged")
    return found
