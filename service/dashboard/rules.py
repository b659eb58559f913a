"""Rules, shipped and learned: what they know, what they matched, and which of them match a line."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import regex
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.matching.matcher import CONFIRM_S
from diagnose.verification.rules import body_of
from service.api.rules import moved
from service.dashboard import session
from service.dashboard.page import PAGE, Page
from service.errors import Forbidden, Refused, Unknown
from service.store import pages
from service.store.learned_rules import learned_rules, stored

if TYPE_CHECKING:
    from diagnose.learning.learned_rule import LearnedRule

_SHOWN = 10
_LONGEST_LINE = 8000
Explained = dict[str, tuple[int, int]]
"""rule -> (failures that it explained, how many of them a person corrected)"""
Dropped = dict[str, int]
"""filter -> lines that it dropped in the latest attempts"""


async def show(request: Request) -> Response:
    """The chosen rules, and what happens to a line."""
    page = Page.of(request)
    asked = {name: page.asked(name) for name in ("q", "family", "state")} | {"line": page.given("line", _LONGEST_LINE)}
    known, explained, dropped = await page.read(
        lambda connection: (stored(connection), pages.rules.explained(connection), pages.rules.dropped(connection))
    )
    rows = await asyncio.to_thread(_chosen, known, page.service.jobs.rules, asked, explained, dropped)
    after = page.asked("before")
    start = next((number + 1 for number, row in enumerate(rows) if row["id"] == after), 0)
    part = rows[start : start + PAGE]
    tried = await asyncio.to_thread(_tried, page.service.jobs.rules, asked["line"]) if asked["line"] else None
    return await page.show(
        "rules.html",
        "rules",
        asked=asked,
        rules=part,
        tried=tried,
        pages=page.pages(part, part[-1]["id"] if start + PAGE < len(rows) else None),
    )


async def one(request: Request) -> Response:
    """A rule with its examples and where it comes from."""
    page = Page.of(request)
    name = request.path_params["rule"]
    known = learned_rules(page.service.store)
    found = await asyncio.to_thread(known.find, name) if known is not None else None
    explained, dropped = await page.read(
        lambda connection: (pages.rules.explained(connection), pages.rules.dropped(connection))
    )
    row = (
        _row(found.rule, found, explained, dropped)
        if found is not None
        else await asyncio.to_thread(_shipped, name, explained, dropped)
    )
    if row is None:
        raise Unknown("there is no such rule", where=name[:80], remedy="see the list of rules")
    audit = await page.read(lambda connection: pages.actions.trail(connection, f"rule/{name}")) if found is not None else []
    return await page.show("rule.html", "rules", rule=row, audit=audit)


async def decide(request: Request) -> Response:
    """Promote or retire a learned rule."""
    page = Page.of(request)
    name = request.path_params["rule"]
    if "admin" not in page.who.may:
        raise Forbidden("this needs an administrator", remedy="sign in with a token of the role admin")
    async with request.form(max_files=0, max_fields=5) as form:
        session.check_form(request, form.get("csrf"))
        answer = str(form.get("answer", ""))
    if answer not in ("promote", "retire"):
        raise Refused("nothing to do", where=answer[:40], remedy="choose promote or retire")
    await moved(page.service, name[:200], "active" if answer == "promote" else "retired", page.who, None)
    said = "promoted" if answer == "promote" else "retired"
    return RedirectResponse(session.inside(request, f"rules/{name}?said={said}"), status_code=303)


def _chosen(
    known: list[LearnedRule], rules: RuleSet, asked: dict[str, str | None], explained: Explained, dropped: Dropped
) -> list[dict[str, Any]]:
    learned = {one.rule.id for one in known}
    rows = [_row(one.rule, one, explained, dropped) for one in known]
    shipped = [_row(rule, None, explained, dropped) for rule in rules if rule.id not in learned]
    # Those that explained most come first, then those that dropped most.
    rows += sorted(shipped, key=lambda row: (row["family"] != "failures" or not row["hits"], -(row["hits"] or 0)))
    if asked["family"]:
        rows = [row for row in rows if row["family"] == asked["family"]]
    if asked["state"]:
        rows = [row for row in rows if row["state"] == asked["state"]]
    if asked["q"]:
        wanted = asked["q"].lower()
        rows = [row for row in rows if wanted in f"{row['id']} {row['title']} {row['pattern']} {row['reason']}".lower()]
    return rows


def _row(rule: Rule, known: LearnedRule | None, explained: Explained, dropped: Dropped) -> dict[str, Any]:
    """A rule with its figures."""
    failures, wrong = explained.get(rule.id, (0, 0))
    matched, dirty = (known.matched, known.dirty) if known is not None else (None, None)
    by_lines = 1 - dirty / matched if matched and dirty is not None else None
    by_failures = 1 - wrong / failures if failures else None
    is_failure = rule.family == "failures"
    return {
        "id": rule.id,
        "family": rule.family,
        "title": rule.title,
        "pattern": rule.pattern,
        "kind": rule.kind,
        "reason": rule.reason,
        "mitigation": rule.mitigation,
        "reference": rule.reference,
        "place": rule.name if known is None else None,
        "matches": [example.line for example in rule.matches[:_SHOWN]],
        "misses": [example.line for example in rule.misses[:_SHOWN]],
        "state": known.state if known is not None else "shipped",
        "hits": matched if known is not None else failures if is_failure else dropped.get(rule.id, 0),
        "precision": by_failures if is_failure and failures else by_lines,
        "matched": matched,
        "dirty": dirty,
        "line_precision": by_lines,
        "explained": failures,
        "corrected": wrong,
        "failure_precision": by_failures,
        "provenance": {**known.provenance, **({"why": known.why} if known.why else {})} if known is not None else {},
    }


@lru_cache(maxsize=1)
def _with_examples() -> dict[str, Rule]:
    return {rule.id: rule for rule in load(examples=True)}


def _shipped(name: str, explained: Explained, dropped: Dropped) -> dict[str, Any] | None:
    rule = _with_examples().get(name)
    return _row(rule, None, explained, dropped) if rule is not None else None


@lru_cache(maxsize=2)
def _expressions(rules: RuleSet) -> list[tuple[Rule, Any]]:
    return [(rule, regex.compile(rule.pattern.encode())) for rule in rules]


def _tried(rules: RuleSet, line: str) -> list[dict[str, Any]]:
    """The rules that match ``line``, the deciding one first. One line does not need Hyperscan."""
    body = body_of(line)
    found = [rule for rule, expression in _expressions(rules) if _matches(expression, body)]
    found.sort(key=lambda rule: (rule.family != "failures" and not rule.facts, rule.left + 2 * rule.yields))
    return [{**_row(rule, None, {}, {}), "verdict": _verdict(rule)} for rule in found]


def _matches(expression: Any, body: bytes) -> bool:
    try:
        return expression.search(body, timeout=CONFIRM_S) is not None
    except TimeoutError:
        return False


def _verdict(rule: Rule) -> str:
    if rule.facts:
        return "dropped, but its facts about the job are kept"
    if rule.family == "failures":
        return "kept, as evidence"
    if rule.left:
        return "kept until it repeats, its numbers read"
    return "dropped, its numbers read" if rule.metrics else "dropped"
