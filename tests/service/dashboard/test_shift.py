"""What came of what was done, in numbers; and the change of a row."""

from __future__ import annotations

from typing import Any

import pytest

from service.dashboard.shift import change
from service.store.pages.shift import verdicts


def test_actions_are_judged_by_the_next_attempt() -> None:
    def action(by: str | None, state: str | None = None, passed: bool | None = None) -> dict[str, Any]:
        return {"decided_by": by, "aftermath": {"state": state, "passed": passed} if state else None}

    done = [
        action("policy", "running", True),
        action("policy", "failed_alike", False),
        action("kim", "healthy"),
        action("kim", "failed_otherwise", False),
        action(None),
    ]
    assert verdicts(done) == {"automatic": 3, "by_people": 2, "right": 2, "vain": 1, "open": 1}


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [((2, 50.0), (1, 100.0), "-50%"), ((2, 5.0), (0, 0.0), "new"), ((0, 0.0), (3, 5.0), "gone"), ((3, 0.0), (2, 0.0), "+50%")],
)
def test_the_change_is_of_what_was_lost_or_else_of_how_often(
    now: tuple[int, float], before: tuple[int, float], said: str
) -> None:
    assert change({"count": now[0], "lost": now[1], "before": before[0], "lost_before": before[1]}) == said
