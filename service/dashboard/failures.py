"""Failure groups: the list, and one of them."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.api.common import place_of
from service.dashboard import charts, session
from service.dashboard.overview import course
from service.dashboard.page import PAGE, Page, taxonomy
from service.errors import Forbidden, Unknown
from service.names import storable
from service.store import groups as states
from service.store import pages, reading
from service.store.pages.asked import Asked

_TREND_S, _TREND = 14 * 86400.0, 14
_SAMPLES = 5


async def show(request: Request) -> Response:
    """The list."""
    page = Page.of(request)
    period = page.period()
    words = {key: page.asked(key) for key in ("state", "category", "reason", "assignee")}
    where = {key: page.asked(key) for key in ("cluster", "user", "node")}
    search, before = page.asked("q"), page.place()

    then = Asked(period.since, period.until, where["cluster"], where["user"], node=where["node"])

    def work(connection: Any) -> list[dict[str, Any]]:
        rows = reading.groups(
            connection,
            limit=PAGE,
            before=before,
            since=period.since,
            among=pages.failures.occurred(then) if period.name is None else None,
            equal={key: value for key, value in words.items() if value},
            search=search,
            **where,
        )
        trends = pages.failures.by_group(
            connection, Asked(page.now - _TREND_S, page.now + 1), [row["id"] for row in rows], _TREND
        )
        times = pages.failures.by_group(connection, then, [row["id"] for row in rows], 1) if period.name is None else {}
        nodes = pages.failures.nodes_of(connection, [row["id"] for row in rows])
        jobs = pages.failures.jobs_of(connection, [row["id"] for row in rows])
        return [
            {**row, "spark": charts.sparkline([float(count) for count in trends[row["id"]]], "failures a day"),
             "then": times[row["id"]][0] if times else None, "nodes": nodes.get(row["id"], 0), "jobs": jobs.get(row["id"], 0)}
            for row in rows
        ]  # fmt: skip

    rows = await page.read(work)
    return await page.show(
        "failures.html",
        "failures",
        asked={"range": period.name, "q": search, **words, **where},
        period=period,
        options=await page.options(period.since),
        groups=rows,
        pages=page.pages(rows, place_of(rows[-1]) if len(rows) == PAGE else None),
    )


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
        rows = reading.occurrences(connection, group_id, limit=PAGE, before=at)
        first = min(group["first_seen"], page.now - 86400)
        asked = Asked(max(first, page.now - 90 * 86400), page.now + 1, group=group_id)
        return {
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
        chart=course(found["counts"], asked, (asked.until - asked.since) / 30, "How often it occurred", height=160),
        samples=samples,
        nodes=[(row["node"], row["count"]) for row in group["nodes"][:40]],
        latest=rows[0] if rows and at is None else None,
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
