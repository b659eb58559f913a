"""Search over everything that has a name: Ctrl-K from any page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.dashboard import session
from service.dashboard.overview import liveness
from service.dashboard.page import Page
from service.store import pages

_MOST = 20


async def show(request: Request) -> Response:
    page = Page.of(request)
    text = page.asked("q")
    if text is not None and text.startswith("#") and text[1:].isascii() and text[1:].isdecimal():
        return RedirectResponse(session.inside(request, f"actions/{int(text[1:])}"), status_code=303)
    found = await page.read(lambda connection: pages.search.found(connection, text, _MOST)) if text else {}
    hang_s = page.service.settings.hang_s
    found = {**found, "jobs": [{**job, "live": liveness(job, page.now, hang_s)} for job in found.get("jobs", [])]}
    rules = sorted(rule.id for rule in page.service.jobs.rules.rules if text and text.lower() in rule.id.lower())[:_MOST]
    return await page.show("search.html", "search", text=text, found=found, rules=rules, most=_MOST)
