"""What models were asked, how far they can be trusted, and which rules came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from service.dashboard.page import Page
from service.store import pages
from service.store.learned_rules import stored

_MOST: Final = 30

KINDS: Final = {
    "specific": "a rule for exactly this message",
    "generic": "an exception, or a general rule",
    "echo": "an echo of a fault elsewhere",
    "detector": "only the numbers of the job",
    "line": "only a line that no rule knows",
    "well": "a line that all went well",
    "quiet": "no proof that the job ended well",
}


async def show(request: Request) -> Response:
    """The page."""
    page = Page.of(request)
    name, seconds, _ = page.range()

    def work(connection: Any) -> tuple[Any, Any, Any]:
        asked = pages.questions.questions(connection, page.now - seconds)
        return asked, pages.questions.records(connection), stored(connection)

    asked, records, known = await page.read(work)
    made = [one for one in known if one.provenance.get("by") == "model" or one.provenance.get("confirmed") == "answer"]
    rules = [
        {"id": one.rule.id, "title": one.rule.title, "state": one.state, "reason": one.rule.reason or one.rule.kind}
        for one in sorted(made, key=lambda one: -one.changed)
    ]
    differ = [one for one in asked if one["said"] not in (None, one["rules"])]
    return await page.show(
        "model.html",
        "model",
        asked={"range": name},
        figures=figures(asked),
        records=records,
        kinds=KINDS,
        rules=rules[:_MOST],
        many_rules=len(rules),
        differ=differ[:_MOST],
        asks=page.service.learning.asks,
    )


def figures(asked: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The questions in numbers. Right and wrong are counted where a person or a later run told what was right."""
    answered = [one for one in asked if one["said"] is not None]
    told = [one for one in answered if one["known"] is not None]
    return {
        "questions": len(asked),
        "answered": len(answered),
        "agreed": sum(one["said"] == one["rules"] for one in answered),
        "followed": sum(one["replaced"] for one in answered),
        "tokens": sum(one["tokens"] for one in asked),
        "told": len(told),
        "right": sum(one["said"] == one["known"] for one in told),
        "rules_right": sum(one["rules"] == one["known"] for one in told),
        "together_right": sum(one["now"] == one["known"] for one in told),
    }
