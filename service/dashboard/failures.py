"""Failure groups: the list, and one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.api.common import place_of
from service.dashboard import charts, session
from service.dashboard.overview import WIDE, course
from service.dashboard.page import PAGE, Page, between, taxonomy
from service.errors import Forbidden, Unknown
from service.names import storable
from service.store import groups as states
from service.store import pages, reading
from service.store.pages.asked import Asked

_TREND_S, _TREND = 14 * 86400.0, 14
_SAMPLES = 5
_IMAGES = 8
_HIGH = 150
"""of a chart above the rows that it is about"""


async def show(request: Request) -> Response:
    """The list."""
    page = Page.of(request)
    period = page.period()
    words = {key: page.asked(key) for key in ("state", "category", "reason", "assignee")}
    where = {key: page.asked(key) for key in ("cluster", "user", "node")}
    search, before = page.asked("q"), page.place()
    image, new = page.asked("image"), page.asked("new") is not None

    then = Asked(period.since, period.until, where["cluster"], where["user"], node=where["node"])
    shown = replace(then, category=words["category"], reason=words["reason"])

    def work(connection: Any) -> tuple[list[dict[str, int]], list[dict[str, Any]]]:
        among = [pages.failures.occurred(then)] if period.name is None else []
        among += [pages.images.failed_with(image)] if image is not None else []
        rows = reading.groups(
            connection,
            limit=PAGE,
            before=before,
            since=period.since,
            among=among,
            clause=pages.images.new_with(connection, image) if image is not None and new else None,
            equal={key: value for key, value in words.items() if value},
            search=search,
            **where,
        )
        # The chart knows nothing of words, states and images.
        whole = not (search or image or words["state"] or words["assignee"])
        counts = pages.totals.over_time(connection, shown, period.bars) if whole else []
        trends = pages.failures.by_group(
            connection, Asked(page.now - _TREND_S, page.now + 1), [row["id"] for row in rows], _TREND
        )
        times = pages.failures.by_group(connection, then, [row["id"] for row in rows], 1) if period.name is None else {}
        nodes = pages.failures.nodes_of(connection, [row["id"] for row in rows])
        jobs = pages.failures.jobs_of(connection, [row["id"] for row in rows])
        return counts, [
            {**row, "spark": charts.sparkline([float(count) for count in trends[row["id"]]], "failures a day"),
             "then": times[row["id"]][0] if times else None, "nodes": nodes.get(row["id"], 0), "jobs": jobs.get(row["id"], 0)}
            for row in rows
        ]  # fmt: skip

    counts, rows = await page.read(work)
    width = (period.until - period.since) / period.bars
    return await page.show(
        "failures.html",
        "failures",
        asked={"range": period.name, "q": search, "image": image, "new": new, **words, **where},
        period=period,
        near=page.near(period),
        chart=course(counts, shown, width, height=_HIGH, link=_within(page), across=WIDE) if any(counts) else None,
        options=await page.options(period.since),
        groups=rows,
        pages=page.pages(rows, place_of(rows[-1]) if len(rows) == PAGE else None),
    )


def _within(page: Page) -> Callable[[float, float], str]:
    """The same page, about the time from one moment to another."""
    others = {
        name: value
        for name, value in page.request.query_params.items()
        if name not in ("from", "to", "range", "before", "said") and value
    }
    return lambda since, until: f"?{urlencode({**others, **between(since, until)})}"


async def one(request: Request) -> Response:
    """A group: how often, where, since when, what to do."""
    page = Page.of(request)
    group_id = _id(request)
    before = page.asked("before")
    at = float(before) if before is not None and before.replace(".", "", 1).isdecimal() else None

    def work(connection: Any) -> dict[str, Any]:
        group = reading.group(connection, group_id)
        if group is None:
            raise Unknown("there is no such failure group", where=str(group_id), remedy="see the list of failures")
        period = page.period()
        if period.name is None:
            asked = Asked(period.since, period.until, group=group_id)
            rows = reading.occurrences(connection, group_id, limit=PAGE, before=at or period.until, since=period.since)
        else:
            first = min(group["first_seen"], page.now - 86400)
            asked = Asked(max(first, page.now - 90 * 86400), page.now + 1, group=group_id)
            rows = reading.occurrences(connection, group_id, limit=PAGE, before=at)
        return {
            "period": period,
            "images": pages.images.counted(connection, group_id)[:_IMAGES],
            "began": pages.images.beginning(connection, group_id),
            "group": {**group, **pages.failures.reach(connection, group_id)},
            "occurrences": rows,
            "suspects": pages.jobs.suspects_of(connection, [row["attempt_id"] for row in rows]),
            "samples": pages.failures.root_lines(connection, group_id, _SAMPLES),
            # All of one category, so an index alone gives the counts.
            "counts": [
                {group["category"]: count} for count in pages.failures.by_group(connection, asked, [group_id], 30)[group_id]
            ],
            "asked": asked,
        }

    found = await page.read(work)
    group, asked, rows = found["group"], found["asked"], found["occurrences"]
    samples = [
        {**line, "root": True, "rule": "root", "who": line["node"] or "", "place": line["source"]} for line in found["samples"]
    ]
    return await page.show(
        "failure.html",
        "failures",
        group=group,
        chart=course(
            found["counts"], asked, (asked.until - asked.since) / 30, "How often it occurred", 160, _within(page), WIDE
        ),
        period=found["period"],
        near=page.near(found["period"]),
        images=found["images"],
        began=found["began"],
        samples=samples,
        nodes=[(row["node"], row["count"]) for row in group["nodes"][:40]],
        latest=rows[0] if rows and at is None and found["period"].name is not None else None,
        taxonomy=taxonomy(),
        occurrences=[{**row, "nodes": found["suspects"].get(row["attempt_id"], [])} for row in rows],
        pages=page.pages(rows, repr(rows[-1]["at"]) if len(rows) == PAGE else None),
    )


async def change(request: Request) -> Response:
    """State, note, assignee and a comment, from the form."""
    page = Page.of(request)
    group_id = _id(request)
    if "operate" not in page.who.may:
        raise Forbidden("this needs the right to operate", remedy="sign in with a token of the role operate")
    async with request.form(max_files=0, max_fields=10) as form:
        session.check_form(request, form.get("csrf"))
        state, note = str(form.get("state", "")), str(form.get("note", ""))[:4000].strip()
        assignee, said = str(form.get("assignee", ""))[:100].strip(), str(form.get("said", ""))[:4000].strip()
    if state not in states.STATES:
        raise Unknown("there is no such state", where=state[:40], remedy=f"use one of: {', '.join(states.STATES)}")
    changes = {
        "state": state,
        "note": storable(note, "note") or None,
        "assignee": storable(assignee, "assignee") or None,
    }
    comment = storable(said, "comment")
    who, now = page.who.name, time.time()
    if await page.read(lambda connection: reading.group(connection, group_id)) is None:
        raise Unknown("there is no such failure group", where=str(group_id), remedy="see the list of failures")
    if not await page.service.store.awrite(lambda connection: reading.change_group(connection, group_id, changes, who, now)):
        raise Unknown("there is no such failure group", where=str(group_id), remedy="see the list of failures")
    if comment:
        await page.service.store.awrite(lambda connection: reading.comment(connection, group_id, comment, who, now))
    page.service.events.publish("failure.changed", group=group_id, who=who, state=state)
    return RedirectResponse(session.inside(request, f"failures/{group_id}?said=saved"), status_code=303)


def _id(request: Request) -> int:
    text = request.path_params["group"]
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Unknown("there is no such failure group", where=text[:40], remedy="see the list of failures")
    return int(text)
