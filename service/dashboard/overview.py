"""The first page: what fails, what it costs, what runs, and what waits for a person."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from service.dashboard import charts, session
from service.dashboard.charts import Bar
from service.dashboard.page import Page, between
from service.store import pages, reading
from service.store.pages.asked import Asked
from service.store.pages.totals import Cost

CATEGORIES = ("infrastructure", "framework", "script", "unknown")
WIDE = 1240
"""of a chart over the whole page"""
_LABELS = 8
"""so many fit under the bars on a phone"""
_FILTERS = ("cluster", "user", "category", "reason", "node")
_INCIDENTS, _RUNNING, _WAITING, _REASONS = 8, 10, 8, 10


async def show(request: Request) -> Response:
    page = Page.of(request)
    asked, period = page.failures(), page.period()
    where = {key: value for key in _FILTERS if (value := getattr(asked, key)) is not None}

    def failures(**more: str) -> str:
        """The address of the list of these failures."""
        return session.inside(request, f"failures?{urlencode({**where, **more})}")

    def work(connection: Any) -> dict[str, Any]:
        running = reading.jobs(
            connection, limit=_RUNNING, node=asked.node, equal=_given(state="running", cluster=asked.cluster, user=asked.user)
        )
        losses = pages.jobs.losses(connection, [job["attempt_id"] for job in running])
        return {
            "over_time": pages.totals.over_time(connection, asked, period.bars),
            "costs": pages.totals.by_reason(connection, asked),
            "incidents": pages.failures.incidents(connection, asked, _INCIDENTS),
            "running": [{**job, "losses": losses.get(job["attempt_id"], [])} for job in running],
            "actions": pages.actions.to_approve(connection, asked, _WAITING),
        }

    silent_before = page.now - page.service.settings.hang_s
    figures, found = await asyncio.gather(  # a database answers both at once
        page.read(lambda connection: pages.totals.figures(connection, asked, silent_before)), page.read(work)
    )
    # A job that goes well has no report with its loss yet, so it comes from memory.
    courses = page.service.jobs.courses((job["name"], job["attempt"]) for job in found["running"])
    running = [
        {
            **job,
            "live": liveness(job, page.now, page.service.settings.hang_s),
            "spark": charts.sparkline(courses.get((job["name"], job["attempt"])) or job["losses"], "loss"),
        }
        for job in found.pop("running")
    ]
    return await page.show(
        "overview.html",
        "",
        asked={"range": period.name, **{key: getattr(asked, key) for key in _FILTERS}},
        period=period,
        near=page.near(period),
        options=await page.options(asked.since),
        figures={
            "failures": figures.failures,
            "before": figures.before,
            "gpu_hours": figures.gpu_seconds / 3600,
            "whole": figures.whole / 3600,
            "open": figures.open,
            "running": figures.running,
            "silent": figures.silent,
            "waiting": figures.waiting,
            "bytes_in": figures.bytes_in,
            "kept": figures.bytes_kept / figures.bytes_in if figures.bytes_in else None,
        },
        chart=course(
            found.pop("over_time"),
            asked,
            (asked.until - asked.since) / period.bars,
            height=660,
            link=lambda since, until: failures(**between(since, until)),
        ),
        pareto=pareto(found.pop("costs"), lambda reason: failures(**{**period.words, "reason": reason})),
        running=running,
        **found,
    )


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def liveness(job: dict[str, Any], now: float, hang_s: float) -> str:
    """running, at_risk (a diagnosis says that something is wrong), silent (nothing was heard for long), or how it ended."""
    if job["state"] != "running":
        return str(job["outcome"])
    if job["reason"] not in (None, "healthy") and (job["confidence"] or 0.0) >= reading.AT_RISK:
        return "at_risk"
    return "silent" if now - job["last_seen"] > hang_s else "running"


def course(
    counts: Sequence[dict[str, int]],
    asked: Asked,
    width: float,
    what: str = "Failures over time",
    height: int = 220,
    link: Callable[[float, float], str] | None = None,
    across: int = 960,
) -> Any:
    """The stacked bars, with the time under each: in UTC until the page's script knows the viewer's time zone. ``link``: the
    address of the failures from one moment to another; then one can also draw over the chart. ``across``: its width on a wide
    screen, so that its words have their usual size there.
    """
    daily = width * len(counts) > 2 * 86400
    bars = []
    for index, values in enumerate(counts):
        at = asked.since + index * width
        known = {name: values.get(name, 0) for name in CATEGORIES}
        known["unknown"] += sum(count for name, count in values.items() if name not in CATEGORIES)
        label = time.strftime("%d %b" if daily else "%H:%M", time.gmtime(at))
        name = label if width >= 86400 else time.strftime("%d %b %H:%M UTC", time.gmtime(at))
        there = link(at, at + width) if link is not None and values else None
        bars.append(Bar(label, known, there, at, "day" if daily else "hour", name))
    stretch = (asked.since, asked.until) if link is not None else None
    return charts.stacked(bars, CATEGORIES, what, across, height, _labelled(asked.since, width, len(bars)), stretch)


def _labelled(since: float, width: float, count: int) -> Collection[int]:
    """The bars that have their time below them, at most ``_LABELS`` of them and evenly spread.

    Where days are told, only a bar in which a day begins has one. About a month has one per week.
    """
    if width * count <= 2 * 86400:
        return range(0, count, math.ceil(count / _LABELS))
    days = [int((since + index * width) // 86400) for index in range(count)]
    firsts = [index for index in range(count) if index == 0 or days[index] != days[index - 1]]
    if len(firsts) > 1 and firsts[1] - firsts[0] < int(86400 / width):
        del firsts[0]  # the rest of a day leaves no room for its label
    every = math.ceil(len(firsts) / _LABELS)
    return firsts[:: 7 if 2 < every <= 7 and width < 2 * 86400 else every]


def pareto(costs: Sequence[Cost], link: Callable[[str], str]) -> list[dict[str, Any]]:
    """The most expensive reasons, with the share that they and those above them make up. The page of failures has
    the rest."""
    by_time = any(cost.gpu_seconds for cost in costs)
    weights = [cost.gpu_seconds if by_time else float(cost.count) for cost in costs]
    whole, most = sum(weights) or 1.0, max(weights, default=1.0)
    rows, so_far = [], 0.0
    for cost, weight in list(zip(costs, weights, strict=True))[:_REASONS]:
        so_far += weight
        rows.append(
            {
                "reason": cost.reason,
                "category": cost.category,
                "count": cost.count,
                "href": link(cost.reason),
                "gpu_hours": cost.gpu_seconds / 3600 if by_time else None,
                "share": weight / whole,
                "cumulated": so_far / whole,
                "bar": charts.bar(weight, most, cost.category if cost.category in CATEGORIES else "unknown"),
            }
        )
    return rows
