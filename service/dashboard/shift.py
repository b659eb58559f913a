"""What happened since somebody last looked, what was done about it and what came of that; and who loses most."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from service.dashboard import charts, session
from service.dashboard.overview import WIDE, course, liveness
from service.dashboard.page import Page, Period, between
from service.store import pages, reading
from service.store.pages.asked import Asked

_MOST_ROWS: Final = 100
_AT_RISK: Final = 12
_HIGH: Final = 150
"""of a chart above the rows that it is about"""


async def show(request: Request) -> Response:
    """The shift: the last 24 hours unless the address says otherwise."""
    page = Page.of(request)
    period = page.period("24h")
    hang_s = page.service.settings.hang_s

    def work(connection: Any) -> tuple[Any, Any, Any]:
        found = pages.shift.shift(connection, period.since, period.until, hang_s, page.now)
        counts = pages.totals.over_time(connection, Asked(period.since, period.until), period.bars)
        return found, counts, reading.jobs(connection, limit=_AT_RISK, at_risk=True)

    found, counts, risky = await page.read(work)
    return await page.show(
        "shift.html",
        "shift",
        asked={"range": period.name},
        period=period,
        near=page.near(period),
        chart=_chart(page, period, counts),
        risky=[{**job, "live": liveness(job, page.now, hang_s)} for job in risky],
        verdicts=found.verdicts,
        figures=found.figures,
        done=found.done,
        more=pages.shift.JUDGED if len(found.decided) == pages.shift.JUDGED else None,
        fresh=found.fresh,
        costs=found.costs,
        waits=found.waits,
    )


async def breakdowns(request: Request) -> Response:
    """Who or what loses most, and whether it gets better."""
    page = Page.of(request)
    period = page.period()
    by = page.asked("by") or "user"
    by = by if by in pages.breakdowns.BY else "user"
    sort = page.asked("sort") or "lost"
    rows, (known_before, counts) = await asyncio.gather(  # a database answers both at once
        page.read(
            lambda connection: pages.breakdowns.broken_down(connection, period.since, period.until, by, _MOST_ROWS),
        ),
        page.read(
            lambda connection: (
                pages.totals.any_job_before(connection, period.since),
                pages.totals.over_time(connection, Asked(period.since, period.until), period.bars),
            )
        ),
    )
    known_before = known_before or any(row["before"] for row in rows)
    keys = {"lost": lambda row: row["lost"], "count": lambda row: row["count"], "jobs": lambda row: row["jobs"],
            "change": lambda row: row["lost"] - row["lost_before"]}  # fmt: skip
    sort = sort if sort in keys else "lost"
    most = max((row["lost"] or row["count"] for row in rows), default=0.0)
    rows = [
        {
            **row,
            "bar": charts.bar(row["lost"] or row["count"], most or 1.0, "unknown"),
            "change": change(row) if known_before else "–",
        }
        for row in sorted(rows, key=keys[sort], reverse=True)
    ]
    return await page.show(
        "breakdowns.html",
        "breakdowns",
        rows=rows,
        known_before=known_before,
        by=by,
        all_by=pages.breakdowns.BY,
        asked={"range": period.name, "sort": sort},
        period=period,
        near=page.near(period),
        chart=_chart(page, period, counts),
        words=urlencode(period.words),
    )


def _chart(page: Page, period: Period, counts: Any) -> Any:
    """The failures of a time, to draw over; None if there were none."""
    if not any(counts):
        return None
    asked = Asked(period.since, period.until)
    width = (asked.until - asked.since) / period.bars

    def link(since: float, until: float) -> str:
        return session.inside(page.request, f"failures?{urlencode(between(since, until))}")

    return course(counts, asked, width, height=_HIGH, link=link, across=WIDE)


def change(row: dict[str, Any]) -> str:
    """Against the time before, in words."""
    if not row["before"]:
        return "new"
    if not row["count"]:
        return "gone"
    now, before = (row["lost"], row["lost_before"]) if row["lost_before"] else (row["count"], row["before"])
    more = (now - before) / before
    return f"{max(more, -0.99) if now else more:+.0%}"  # -100% only where nothing is lost any more
