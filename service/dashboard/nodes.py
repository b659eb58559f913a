"""Nodes: the grid, and one node."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from diagnose.decision.policy import ISOLATE, REBOOT, RELEASE
from service.acting.executors.executor import Order
from service.auth import check_runs_the_cluster
from service.dashboard import charts, links, session
from service.dashboard.approval import Hands
from service.dashboard.charts import Stretch, Track
from service.dashboard.overview import liveness
from service.dashboard.page import Page, Period
from service.errors import Conflict, Forbidden, Refused, Unknown
from service.names import storable
from service.store import actions as stored
from service.store import findings, nodechecks, pages, reading

_AXIS_S = 30 * 86400.0
_MOST = 1500
"""so that the grid of a large cluster fits on a page"""


async def show(request: Request) -> Response:
    """The grid, and the nodes to look at first."""
    page = Page.of(request)
    asked = {key: page.asked(key) for key in ("q", "state", "check")}
    rows, counts, checks = await page.read(
        lambda connection: (
            pages.nodes.some_nodes(connection, limit=_MOST, name=asked["q"], state=asked["state"], check=asked["check"]),
            pages.nodes.node_states(connection),
            nodechecks.latest(connection),
        )
    )
    more = sum(counts.values()) if len(rows) == _MOST else None
    return await page.show("nodes.html", "nodes", nodes=rows, counts=counts, checks=checks, asked=asked, more=more)


async def one(request: Request) -> Response:
    """A node: what it is suspected of, its tests, and what was done with it."""
    page = Page.of(request)
    name = request.path_params["node"]
    period = page.period()
    drawn = period if period.name is None else None

    def work(connection: Any) -> dict[str, Any]:
        node = reading.node(connection, name)
        if node is None:
            raise Unknown("there is no such node", where=name[:80], remedy="see the nodes")
        titles = pages.failures.titles(connection, [row["group_id"] for row in node["history"]])
        history = [{**row, "title": titles.get(row["group_id"], "?")} for row in node["history"]]
        return {
            "node": node,
            "history": history,
            "checks": nodechecks.of_node(connection, name),
            "findings": findings.of_node(connection, name),
            "audit": [{**row, "why": _why(row["detail"])} for row in pages.actions.trail(connection, f"node/{name}")],
            "actions": pages.actions.of_node(connection, name),
            "ran": pages.nodes.jobs_of(connection, name, drawn.since if drawn else page.now - _AXIS_S, period.until),
            "out": pages.nodes.isolations_of(connection, name, drawn.since if drawn else page.now - _AXIS_S),
        }

    found = await page.read(work)
    waiting = [one for one in found["actions"] if one["state"] == "proposed" and one["mode"] != "observe"]
    out = links.of_node(page.service.settings.links, name, page.now - 86400.0, page.now)
    return await page.show("node.html", "nodes", axis=_axis(page, found, drawn), waits=waiting, links=out,
                           period=period, near=page.near(period), **found)  # fmt: skip


def _axis(page: Page, found: dict[str, Any], drawn: Period | None) -> Any:
    """All that happened with a node on one axis of time: as far back as something is known, at most 30 days; or in the time
    that somebody drew.
    """
    at = [
        *(row["started_at"] for row in found["ran"]),
        *(row["at"] for row in (*found["history"], *found["checks"], *found["out"])),
        *(row["created"] for row in found["actions"]),
    ]
    since = drawn.since if drawn else max(page.now - _AXIS_S, min([page.now - 3600.0, *at]))
    until = drawn.until if drawn else page.now
    hang_s = page.service.settings.hang_s

    def link(path: str) -> str:
        return session.inside(page.request, path)

    def days(text: str) -> str:
        return text.replace("_", " ")

    jobs = [
        Stretch(
            row["started_at"],
            max(row["started_at"] + 1, page.now if row["state"] == "running" else row["ended_at"] or row["last_seen"]),
            {"healthy": "none", "running": "accent", "at_risk": "warn"}.get(liveness(row, page.now, hang_s), "unknown"),
            f"{row['job']}, attempt {row['attempt']}: {days(liveness(row, page.now, hang_s))}",
            link(f"jobs/{quote(row['job'], safe='')}?attempt={row['attempt']}"),
        )
        for row in found["ran"]
    ]
    failures = [
        Stretch(
            row["at"], row["at"], row["category"], f"{days(row['reason'])} of {row['job']}", link(f"failures/{row['group_id']}")
        )
        for row in found["history"]
    ]
    colours = {"good": "none", "faulty": "infrastructure"}
    checks = [
        Stretch(row["at"], row["at"], colours.get(row["result"], "warn"), f"check: {row['result']}") for row in found["checks"]
    ]
    actions = [
        Stretch(row["created"], row["created"], "accent", f"{days(row['kind'])}: {row['state']}", link(f"actions/{row['id']}"))
        for row in found["actions"]
    ]
    out = [
        Stretch(row["at"], row["released"] or page.now, "infrastructure", f"out of service, by {row['by']}")
        for row in found["out"]
    ]
    rows = [Track("jobs", jobs), Track("failures", failures), Track("checks", checks), Track("actions", actions)]
    kept = [
        Track(row.label, [one for one in row.stretches if one.end >= since and one.begin <= until])
        for row in (*rows, Track("isolated", out))
    ]
    return charts.tracks(kept, since, until, "What happened with this node", brush=True)


def _why(detail: dict[str, Any]) -> str | None:
    """The sentence of an entry in the trail. For a decision it is in its action."""
    action = detail.get("action")
    found = detail.get("why") or (action.get("why") if isinstance(action, dict) else None)
    return str(found) if found else None


async def ask(request: Request) -> Response:
    """A person asks to isolate a node, to give it back, or to reboot it."""
    page = Page.of(request)
    name = request.path_params["node"]
    if "operate" not in page.who.may:
        raise Forbidden("this needs the right to operate", remedy="sign in with a token of the role operate")
    check_runs_the_cluster(page.who)
    async with request.form(max_files=0, max_fields=5) as form:
        session.check_form(request, form.get("csrf"))
        answer, why = str(form.get("answer", "")), str(form.get("why", ""))[:500].strip()
    kind = {"isolate": ISOLATE, "return": RELEASE, "reboot": REBOOT}.get(answer)
    if kind is None:
        raise Refused("nothing to do", where=answer[:40], remedy="choose isolate, return or reboot")
    try:
        action = await page.service.actions.ask_for_node(
            kind, storable(name, "node") or "", page.who.name, why or f"{answer}, by hand"
        )
    except Conflict:
        answer = "under_way"
    else:
        order = await page.read(lambda connection: stored.order(connection, action))
        able, _ = Hands.of(page.service, page.now).said(Order.of(order))
        answer = answer if able else "unable"
    return RedirectResponse(session.inside(request, f"nodes/{name}?said={answer}"), status_code=303)
