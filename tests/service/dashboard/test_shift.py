"""What came of what was done, in numbers; and the change of a row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from benchmarks.pages.filling import Size, fill
from service.dashboard.shift import change
from service.store import Store, tables
from service.store.pages.shift import MOST, shift, verdicts
from service.store.pages.totals import any_job_before


def test_actions_are_judged_by_the_next_attempt() -> None:
    def action(by: str | None, then: str | None = None, passed: bool | None = None, **more: str) -> dict[str, Any]:
        after = {"state": then, "passed": passed} if then else None
        return {"decided_by": by, "kind": "restart", "state": "succeeded", "aftermath": after, **more}

    done = [
        action("policy", "running", True),
        action("policy", "failed_alike", False),
        action("kim", "healthy"),
        action("kim", "failed_otherwise", False),
        action(None),
        action("policy", "running", False),
        action("kim", state="rejected"),
        action("policy", kind="isolate"),
    ]
    assert verdicts(done) == {
        "automatic": 5,
        "by_people": 2,
        "rejected": 1,
        "right": 2,
        "vain": 1,
        "other": 1,
        "open": 1,
        "none": 1,
    }


def test_all_that_was_done_is_counted_and_not_only_what_is_listed(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path)
    store.migrate()
    fill(store, Size(jobs=200, failures=200, lines=0, groups=4, nodes=4), now := time.time())
    with store.engine.begin() as connection:
        connection.execute(update(tables.actions).values(state="succeeded", kind="restart", changed=now - 60, decided_by="kim"))
        found = shift(connection, now - 3600, now, 600)
    store.close()
    assert (len(found.done), found.verdicts["by_people"], found.verdicts["none"]) == (MOST, 200, 200)


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ((2, 50.0), (1, 100.0), "-50%"),
        ((2, 5.0), (0, 0.0), "new"),
        ((0, 0.0), (3, 5.0), "gone"),
        ((3, 0.0), (2, 0.0), "+50%"),
        ((2, 1.0), (2, 1000.0), "-99%"),
        ((2, 0.0), (2, 1000.0), "-100%"),
    ],
)
def test_the_change_is_of_what_was_lost_or_else_of_how_often(
    now: tuple[int, float], before: tuple[int, float], said: str
) -> None:
    assert change({"count": now[0], "lost": now[1], "before": before[0], "lost_before": before[1]}) == said


def test_a_job_that_began_long_ago_is_of_the_time_before_though_it_still_runs(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path)
    store.migrate()
    fill(store, Size(jobs=8, failures=4, lines=0, groups=2, nodes=1), now := time.time())
    with store.engine.begin() as connection:
        connection.execute(update(tables.jobs).values(first_seen=now - 30 * 86400, last_seen=now))
        assert any_job_before(connection, now - 7 * 86400)
        assert not any_job_before(connection, now - 31 * 86400)
    store.close()
