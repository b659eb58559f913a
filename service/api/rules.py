"""Rules: those that ship with the program, and those that were learned."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from diagnose.learned import Learned
from diagnose.rules import Rule
from service.api import shapes
from service.api.common import REFUSALS, Here, Limit, Reader, Word
from service.store import tables as t
from service.store.book import selected

router = APIRouter(tags=["rules"], responses=REFUSALS)
_STATES = "shipped|proposed|shadow|active|retired"


@router.get("/v1/rules", response_model=shapes.RulePage, summary="Rules in order of precedence, learned ones first")
async def rules(
    service: Here,
    who: Reader,
    limit: Limit = 200,
    after: Annotated[str | None, Query(max_length=300, description="`next` of the page before")] = None,
    state: Annotated[str | None, Query(pattern=f"^({_STATES})$")] = None,
    family: Annotated[str | None, Query(pattern="^(failures|filters)$")] = None,
    search: Word = None,
) -> dict[str, Any]:
    learned: list[Learned] = []
    if state != "shipped":
        conditions = [t.rules.c.state == state] if state is not None else []
        learned = await service.store.aread(lambda connection: selected(connection, *conditions))
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


def _row(rule: Rule, known: Learned | None) -> dict[str, Any]:
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
