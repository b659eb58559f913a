"""The orders of a runner. It takes them from a service over HTTP, and carries them out where the cluster is.

The runner only needs a way out to the service, none in. Its name is stored in its state folder, which only one process can
hold. After a crash it continues its own orders, and nobody else does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.folder_lock import Guard
from service.acting.actions import InHand, Taken
from service.acting.dispatch import Dispatch, Pace, name_in
from service.acting.executors.configuration import Configured
from service.acting.executors.executor import Problem
from service.acting.executors.http import Server
from service.errors import Busy, Conflict, Forbidden, Refused, Unauthorised, Unavailable, Unknown
from service.net.client import Answer

log = logging.getLogger("diagnose.runner")
_BACK_S = 2.0
_REFUSALS: dict[int, type[Refused]] = {401: Unauthorised, 403: Forbidden, 404: Unknown, 429: Busy}
_AWAY = frozenset({408, 425, 500, 502, 503, 504})


class Remote:
    """Orders of a service that is reached over HTTP: an ``OrderSource``."""

    def __init__(self, server: Server, token: Callable[[], str | None], name: str) -> None:
        """``token`` is called for each request, because it may be renewed."""
        self._server, self._token, self._name = server, token, name

    async def orders(self) -> list[dict[str, Any]]:
        said = await self._ask("GET", f"/orders?executor={self._name}")
        return [one for one in said.get("waiting") or [] if isinstance(one, dict)]

    async def in_hand(self, whose: str) -> list[InHand]:
        said = await self._ask("GET", f"/orders?executor={whose}")
        return [InHand(one["id"], one["claimed_by"], one["begun"]) for one in said.get("in_hand") or []]

    async def claim(self, action_id: int, who: str) -> Taken:
        return _taken(await self._ask("POST", f"/{action_id}/claim", executor=who))

    async def resume(self, action_id: int, who: str) -> Taken:
        return _taken(await self._ask("POST", f"/{action_id}/resume", executor=who))

    async def begin(self, action_id: int, who: str, fence: int) -> None:
        await self._ask("POST", f"/{action_id}/start", executor=who, fence=fence)

    async def renew(self, action_id: int, who: str, fence: int) -> None:
        await self._ask("POST", f"/{action_id}/renew", executor=who, fence=fence)

    async def finish(
        self, action_id: int, who: str, fence: int, succeeded: bool, said: str, isolated: Sequence[str] | None = None
    ) -> None:
        told = {"executor": who, "fence": fence, "succeeded": succeeded, "said": said}
        if isolated is not None:
            told["isolated"] = list(isolated)
        await self._ask("POST", f"/{action_id}/result", **told)

    async def checked(self, verdict: dict[str, Any], who: str) -> None:
        await self._ask("POST", "/checks", "nodes", **verdict)

    async def _ask(self, method: str, path: str, what: str = "actions", /, **body: Any) -> dict[str, Any]:
        content = json.dumps(body).encode() if body else None
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
        try:
            if (token := self._token()) is not None:
                headers["Authorization"] = f"Bearer {token}"
            answer = await self._server.ask(method, f"/v1/{what}{path}", headers=headers, body=content)
        except Problem as problem:
            raise Unavailable(problem.what) from None
        except DiagnoseError as unreadable:
            raise Unavailable(str(unreadable)) from None
        said = answer.json()
        if 200 <= answer.status < 300 and isinstance(said, dict):
            return said
        raise self._refusal(answer, said if isinstance(said, dict) else {})

    def _refusal(self, answer: Answer, said: dict[str, Any]) -> Refused:
        what, remedy = str(said.get("what") or answer.text or "it says no more"), said.get("remedy")
        kind = _REFUSALS.get(answer.status, Conflict)
        # A proxy's page is not an answer of the service.
        if answer.status in _AWAY or answer.status < 400 or (kind in (Conflict, Unknown) and "error" not in said):
            kind = Unavailable
        return kind(what, where=f"{self._server.shown} ({answer.status})", remedy=remedy if isinstance(remedy, str) else None)


def _taken(said: dict[str, Any]) -> Taken:
    try:
        return Taken(said["id"], said["fence"], said["lease_until"], float(said["lease_s"]), dict(said["order"]))
    except (KeyError, TypeError, ValueError):
        raise Unavailable("the answer of the service is not understood; its version may be older than this runner's") from None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[str]:
    """The runner's name, while nobody else has the folder."""
    guard = Guard(folder, "another runner", "--state")
    try:
        yield name_in(folder, "runner")
    finally:
        guard.close()


async def act(
    orders: Remote,
    executors: Sequence[Configured],
    name: str,
    stop: asyncio.Event,
    *,
    once: bool = False,
    pace: Pace | None = None,
) -> None:
    """Carry out orders until ``stop`` is set. With ``once``, carry out the orders that are there, and return."""
    dispatch = Dispatch(orders, executors, name, pace=pace)
    if once:
        await dispatch.recover()
        await dispatch.once()
        return
    while not stop.is_set():
        try:
            await dispatch.recover()
            break
        except (Unavailable, Busy) as away:
            log.warning("%s", away)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACK_S):
                    await stop.wait()
    dispatch.start()
    log.info("%s carries out orders with %s", name, ", ".join(one.name for one in executors))
    await stop.wait()
    await dispatch.stop()
