"""What happened since somebody last looked, what was done about it and what came of that; and who loses most."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from service.dashboard import charts
from service.dashboard.page import Page
from service.store import pages

_MOST_ROWS: Final = 100


async def show(request: Request) -> Response:
    """The shift: the last 24 hours unless the address says otherwise."""
    page = Page.of(request)
    name = page.range()[0] if page.asked("range") else "24h"
    since = page.now - page.range()[1] if page.asked("range") else page.now - 86400.0
    hang_s = page.service.settings.hang_s
    found = await page.read(lambda connection: pages.shift.shift(connection, since, page.now, hang_s))
    return await page.show(
        "shift.html",
        "shift",
        asked={"range": name},
        since=since,
        verdicts=found.verdicts,
        figures=found.figures,
        done=found.done,
        fresh=found.fresh,
        costs=found.costs,
        waits=found.waits,
    )


async def breakdowns(request: Request) -> Response:
    """Who or what loses most, and whether it gets better."""
    page = Page.of(request)
    name, seconds, _ = page.range()
    by = page.asked("by") or "user"
    by = by if by in pages.breakdowns.BY else "user"
    sort = page.asked("sort") or "lost"
    rows = await page.read(
        lambda connection: pages.breakdowns.broken_down(connection, page.now - seconds, page.now + 1, by, _MOST_ROWS)
    )
    keys = {"lost": lambda row: row["lost"], "count": lambda row: row["count"], "jobs": lambda row: row["jobs"],
            "change": lambda row: row["lost"] - row["lost_before"]}  # fmt: skip
    sort = sort if sort in keys else "lost"
    most = max((row["lost"] or row["count"] for row in rows), default=0.0)
    rows = [
        {**row, "bar": charts.bar(row["lost"] or row["count"], most or 1.0, "unknown"), "change": change(row)}
        for row in sorted(rows, key=keys[sort], reverse=True)
    ]
    return await page.show(
        "breakdowns.html", "breakdowns", rows=rows, by=by, all_by=pages.breakdowns.BY, asked={"range": name, "sort": sort}
    )


def change(row: dict[str, Any]) -> str:
    """Against the time before, in words."""
    if not row["before"]:
        return "new"
    if not row["count"]:
        return "gone"
    now, before = (row["lost"], row["lost_before"]) if row["lost_before"] else (row["count"], row["before"])
    return f"{(now - before) / before:+.0%}"
