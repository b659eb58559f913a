"""Actions: the queue, and one action with its record."""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.acting.executors.executor import Order
from service.auth import check_runs_the_cluster
from service.dashboard import approval, session
from service.dashboard.page import PAGE, Page
from service.errors import Conflict, Forbidden, Refused, Unknown
from service.store import actions as stored
from service.store import pages

log = logging.getLogger("diagnose.dashboard")


async def show(request: Request) -> Response:
    """The queue, the latest first."""
    page = Page.of(request)
    state, before = page.asked("state"), page.number("before")
    rows = await page.read(lambda connection: pages.actions.some_actions(connection, limit=PAGE, state=state, before=before))
    return await page.show(
        "actions.html",
        "actions",
        actions=rows,
        asked={"state": state},
        pages=page.pages(rows, str(rows[-1]["id"]) if len(rows) == PAGE else None),
    )


async def one(request: Request) -> Response:
    """An action: why, on what evidence, and who did what."""
    return await _shown(Page.of(request), _id(request))


async def _shown(page: Page, action_id: int, trial: str | None = None) -> Response:
    """``trial``: what the executor says that it would do."""
    hands = approval.Hands.of(page.service, page.now)

    def work(connection: Any) -> dict[str, Any]:
        found = _action(connection, action_id)
        if found["basis"] is not None:
            decision = found["basis"]["decision"]
        elif found["attempt_id"] is not None:  # made before actions kept what they rest on
            decision = stored.decision_of(connection, found["attempt_id"])
        else:
            decision = _about_node(connection, found)
        return {
            "action": found,
            "decision": decision,
            "evidence": decision.get("evidence") if decision is not None else None,
            "audit": pages.actions.trail(connection, f"action/{action_id}"),
            "meant": _meant(connection, found, hands, page.now),
        }

    found = await page.read(work)
    return await page.show("action.html", "actions", trial=trial, **found)


def _meant(connection: Any, action: dict[str, Any], hands: approval.Hands, now: float) -> dict[str, Any] | None:
    """What a yes means. None: nobody can say yes any more, or there is nothing to carry out."""
    if action["state"] not in ("proposed", "approved") or action["kind"] not in pages.actions.ACTS:
        return None
    order = Order.of(stored.order(connection, action["id"]))
    counts = pages.nodes.node_states(connection)
    able, who = hands.said(order)
    others = pages.actions.jobs_on(connection, order.nodes, action["attempt_id"]) if order.nodes else []
    return {
        "able": able,
        "who": who,
        "touched": approval.touched(order, others, sum(counts.values()), counts["isolated"]),
        "silence": approval.silence(action["state"], action["expires"], now),
        "asks": bool(hands.executors),
    }


def _action(connection: Any, action_id: int) -> dict[str, Any]:
    found = pages.actions.action(connection, action_id)
    if found is None:
        raise Unknown("there is no such action", where=str(action_id), remedy="see the list of actions")
    return found


def _about_node(connection: Any, action: dict[str, Any]) -> dict[str, Any] | None:
    """The decision behind an action on a node, from the node's record. If a person asked for it, there is none."""
    for node in action["nodes"][:1]:
        for entry in pages.actions.trail(connection, f"node/{node}"):
            if entry["what"] == f"decided.{action['kind']}" and entry["at"] == action["created"]:
                found: dict[str, Any] = entry["detail"]
                return found
    return None


async def decide(request: Request) -> Response:
    """Approve or reject, from the form."""
    page = Page.of(request)
    action_id = _id(request)
    if "operate" not in page.who.may:
        raise Forbidden("this needs the right to operate", remedy="sign in with a token of the role operate")
    async with request.form(max_files=0, max_fields=5) as form:
        session.check_form(request, form.get("csrf"))
        answer, why = str(form.get("answer", "")), str(form.get("why", ""))[:2000]
    found = await page.read(lambda connection: _action(connection, action_id))
    try:
        if answer == "try":
            order = await page.read(lambda connection: stored.order(connection, action_id))
            trial = await approval.tried(page.service.dispatch.executors, Order.of(order))
            return await _shown(page, action_id, trial)
        if answer == "approve":
            await page.service.actions.approve(action_id, page.who.name, page.who.may)
            order = await page.read(lambda connection: stored.order(connection, action_id))
            able, _ = approval.Hands.of(page.service, page.now).said(Order.of(order))
            said = "approved" if able else "unable"
        elif answer == "reject":
            await page.service.actions.reject(action_id, page.who.name, page.who.may, why or "rejected")
            said = "rejected"
        elif answer == "undo":
            if found["out"]:
                check_runs_the_cluster(page.who)
            said = await page.service.actions.undo(action_id, page.who.name, page.who.may)
        else:
            raise Refused("nothing to do", where=answer[:40], remedy="choose approve, reject, try or undo")
    except Conflict as error:
        log.info("action %s: %s", action_id, error)
        return RedirectResponse(session.inside(request, f"actions/{action_id}?said=late"), status_code=303)
    return RedirectResponse(session.inside(request, f"actions/{action_id}?said={said}"), status_code=303)


def _id(request: Request) -> int:
    text = request.path_params["action"]
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Unknown("there is no such action", where=text[:40], remedy="see the list of actions")
    return int(text)
