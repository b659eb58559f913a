"""What happened since somebody last looked, what was done about it, what came of that, and what waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from diagnose.decision.result import RESTARTS
from service.store.pages import actions, failures, totals
from service.store.pages.asked import Asked

MOST: Final = 30
"""actions and failures of each list"""
JUDGED: Final = 1000
"""decided actions that are counted"""
_COSTS: Final = 8


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift, as its page and its digest show it."""

    figures: totals.Figures
    done: list[dict[str, Any]]
    """the latest ``MOST``"""
    decided: list[dict[str, Any]]
    """the latest ``JUDGED``: only what is counted of them"""
    fresh: list[dict[str, Any]]
    """failures that are new or back, the most expensive first"""
    costs: list[totals.Cost]
    waits: list[dict[str, Any]]

    @property
    def verdicts(self) -> dict[str, int]:
        return verdicts(self.decided)


def shift(connection: Connection, since: float, until: float, hang_s: float, now: float | None = None) -> Shift:
    """From ``since`` to ``until``, which is ``now`` if nothing else is said. What waits, waits now. A running job is silent if
    nothing came of it for ``hang_s``.
    """
    now = until if now is None else now
    asked = Asked(since, until + 1)
    return Shift(
        totals.figures(connection, asked, now - hang_s),
        actions.done(connection, since, asked.until, MOST),
        actions.decided(connection, since, asked.until, JUDGED),
        failures.new_failures(connection, since, asked.until, MOST),
        totals.by_reason(connection, asked)[:_COSTS],
        actions.to_approve(connection, Asked(0.0, now + 1), MOST),
    )


def verdicts(decided: list[dict[str, Any]]) -> dict[str, int]:
    """By whose word actions were carried out, and what came of them, in numbers."""
    counted: Counter[str] = Counter()
    for action in decided:
        if action["state"] == "rejected":
            counted["rejected"] += 1
            continue
        counted["automatic" if by_itself(action) else "by_people"] += 1
        if action["kind"] in RESTARTS:
            counted[judged(action["aftermath"])] += 1
    return {name: counted[name] for name in ("automatic", "by_people", "rejected", "right", "vain", "other", "open", "none")}


_JUDGED: Final = {"healthy": "right", "completed": "right", "failed_alike": "vain", "failed_otherwise": "other"}


def judged(after: dict[str, Any] | None) -> str:
    """Whether a restart was right: the next attempt passed the step of the failure or went well. It was in vain if that failed
    in the same way. None: no attempt came after it.
    """
    if after is None:
        return "none"
    return "right" if after["passed"] else _JUDGED.get(after["state"], "open")


def by_itself(action: dict[str, Any]) -> bool:
    """The policy decided, and no person."""
    return action["decided_by"] in (None, "", "policy")
