"""Nodes: the grid, and one node."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from diagnose.decision.policy import ISOLATE, RELEASE
from service.auth import check_runs_the_cluster
from service.dashboard import session
from service.dashboard.page import Page
from service.errors import Conflict, Forbidden, Refused, Unknown
from service.names import storable
from service.store import findings, nodechecks, pages, reading

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
        }

    return await page.show("node.html", "nodes", **await page.read(work))


def _why(detail: dict[str, Any]) -> str | None:
    """The sentence of an entry in the trail. For a decision it is in its action."""
    action = detail.get("action")
    found = detail.get("why") or (action.get("why") if isinstance(action, dict) else None)
    return str(found) if found else None


async def ask(request: Request) -> Response:
    """A person asks to isolate a node, or to give it back."""
    page = Page.of(request)
    name = request.path_params["node"]
    if "operate" not in page.who.may:
        raise Forbidden("this needs the right to operate", remedy="sign in with a token of the role operate")
    check_runs_the_cluster(page.who)
    async with request.form(max_files=0, max_fields=5) as form:
        session.check_form(request, form.get("csrf"))
        answer, why = str(form.get("answer", "")), str(form.get("why", ""))[:500].strip()
    kind = {"isolate": ISOLATE, "return": RELEASE}.get(answer)
    if kind is None:
        raise Refused("nothing to do", where=answer[:40], remedy="choose isolate or return")
    try:
        await page.service.actions.ask_for_node(kind, storable(name, "node") or "", page.who.name, why or f"{answer}, by hand")
    except Conflict:
        answer = "late"
    return RedirectResponse(session.inside(request, f"nodes/{name}?said={answer}"), status_code=303)
