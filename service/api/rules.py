"""Rules: those that ship with the program, and those that were learned."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query

from diagnose.errors import DiagnoseError, RuleError, needs
from diagnose.knowledge.rules import Rule
from service.api import bodies
from service.api.common import REFUSALS, Admin, Asking, Here, Limit, Reader, Word
from service.auth import Who
from service.errors import Conflict, Unknown
from service.names import storable
from service.runtime import Service
from service.store.learned_rules import stored
from service.store.reading import record

if TYPE_CHECKING:
    from diagnose.learning.learned_rule import LearnedRule

router = APIRouter(route_class=Asking, tags=["rules"], responses=REFUSALS)
RuleId = Annotated[str, Path(max_length=200, examples=["asked-0f3b1c22d9"])]
_STATES = "shipped|proposed|shadow|active|retired"


@router.get("/v1/rules", response_model=bodies.RulePage, summary="Rules in order of precedence, learned ones first")
async def rules(
    service: Here,
    who: Reader,
    limit: Limit = 200,
    after: Annotated[str | None, Query(max_length=300, description="`next` of the page before")] = None,
    state: Annotated[str | None, Query(pattern=f"^({_STATES})$")] = None,
    family: Annotated[str | None, Query(pattern="^(failures|filters)$")] = None,
    search: Word = None,
) -> dict[str, Any]:
    learned: list[LearnedRule] = []
    if state != "shipped":
        learned = await service.read(who, lambda connection: stored(connection, state))
    rows = [_row(known.rule, known) for known in learned]
    if state in (None, "shipped"):
        rows += await asyncio.to_thread(lambda: [_row(rule, None) for rule in service.jobs.rules])
    if family is not None:
        rows = [row for row in rows if row["family"] == family]
    if search:
        wanted = search.lower()
        rows = [row for row in rows if wanted in f"{row['id']} {row['title']} {row['pattern']}".lower()]
    start = next((number + 1 for number, row in enumerate(rows) if row["id"] == after), 0) if after is not None else 0
    page = rows[start : start + limit]
    return {"rules": page, "next": page[-1]["id"] if start + limit < len(rows) else None}


@router.post("/v1/rules/{rule}/promote", response_model=bodies.RuleRow, summary="A learned rule acts for all jobs from now on")
async def promote(rule: RuleId, service: Here, who: Admin, change: Annotated[bodies.RuleChange | None, Body()] = None) -> Any:
    return _row_of(await moved(service, rule, "active", who, change.why if change is not None else None))


@router.post("/v1/rules/{rule}/retire", response_model=bodies.RuleRow, summary="A learned rule acts no more")
async def retire(rule: RuleId, service: Here, who: Admin, change: Annotated[bodies.RuleChange | None, Body()] = None) -> Any:
    return _row_of(await moved(service, rule, "retired", who, change.why if change is not None else None))


async def moved(service: Service, rule: str, state: Literal["active", "retired"], who: Who, why: str | None) -> LearnedRule:
    """Put a rule into another state. This is entered in the audit trail, and all scanners use it before the answer."""
    storable(rule, "rule")
    try:
        needs("diagnose.agent", "diagnose.learning")
    except DiagnoseError as error:
        raise Conflict(error.what, where=rule, remedy=error.remedy) from None
    from diagnose.learning.rule_store import RuleStore, move
    from service.store.incidents import StoreIncidents

    learned, now = RuleStore(service.store), time.time()
    did = "promoted" if state == "active" else "retired"
    why = storable(why, "why") or None

    def work() -> LearnedRule:
        before = learned.find(rule)
        if before is None:
            raise Unknown("there is no such learned rule", where=rule, remedy="GET /v1/rules lists them; shipped ones stay")
        promoted = state == "active"
        roots = StoreIncidents(service.store).roots() if promoted else ()
        after = move(learned, rule, state, why or f"{did} by {who.name}", now, everywhere=promoted, evidence=roots)
        detail = {"was": before.state, "scope": before.scope, "why": why}
        service.store.write(lambda connection: record(connection, who.name, f"rule.{did}", f"rule/{rule}", detail, now))
        service.jobs.matchers.refresh()
        return after

    try:
        after = await asyncio.to_thread(work)
    except RuleError as error:
        raise Conflict(error.what, where=rule, remedy=error.remedy) from None
    service.learning.changed()
    service.events.publish(f"rule.{did}", rule=rule, who=who.name)
    return after


def _row_of(known: LearnedRule) -> dict[str, Any]:
    return _row(known.rule, known)


def _row(rule: Rule, known: LearnedRule | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": rule.id,
        "family": rule.family,
        "file": rule.file,
        "title": rule.title,
        "pattern": rule.pattern,
        "kind": rule.kind,
        "reason": rule.reason,
        "layer": rule.layer,
        "severity": rule.severity if rule.family == "failures" else None,
        "framework": rule.framework,
        "mitigation": rule.mitigation,
        "reference": rule.reference,
        "state": "shipped",
    }
    if known is not None:
        row |= {
            "state": known.state,
            "scope": known.scope,
            "why": known.why,
            "matched": known.matched,
            "dirty": known.dirty,
            "provenance": known.provenance,
        }
    return row
