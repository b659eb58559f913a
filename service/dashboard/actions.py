"""Actions: the queue, and one of them with its record."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.dashboard.page import PAGE, Page
from service.errors import Unknown
from service.store import overview, reading


async def show(request: Request) -> Response:
    """The queue, the latest first."""
    page = Page.of(request)
    state, before = page.asked("state"), page.number("before")
    rows = await page.read(lambda connection: reading.actions(connection, limit=PAGE, state=state, before=before))
    return await page.show(
        "actions.html",
        "actions",
        actions=rows,
        asked={"state": state},
        pages=page.pages(rows, str(rows[-1]["id"]) if len(rows) == PAGE else None),
    )


async def one(request: Request) -> Response:
    """An action: why, on what evidence, and who did what."""
    page = Page.of(request)
    text = request.path_params["action"]
    action_id = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0

    def work(connection: Any) -> dict[str, Any]:
        found = overview.action(connection, action_id)
        if found is None:
            raise Unknown("there is no such action", where=text[:40], remedy="see the list of actions")
        return {"action": found, "audit": overview.trail(connection, f"action/{action_id}")}

    return await page.show("action.html", "actions", **await page.read(work))
