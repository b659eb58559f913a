"""Tasks of the worker: none is lost, and none is given up for another's fault."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from diagnose.backoff import Backoff
from diagnose.knowledge.rules import RuleSet
from diagnose.learning import worker_process
from diagnose.learning.rule_store import RuleStore
from service.events import Events
from service.learning import host
from service.learning.host import Learning
from service.live.matchers import Matchers
from service.settings import Settings
from service.store import Store, tasks
from service.store import tables as t
from service.store.attempts import open_attempt
from service.store.diagnoses import improve
from service.store.tasks import Wanted
from service.telemetry import Telemetry
from tests.service.store.test_store import begin, judge, report

STAND_IN = r'''
"""A stand-in for the worker process: it does each task as the task's own detail says."""
import json, os, pathlib, struct, sys, threading
FRAME = struct.Struct("<III")
def tell(**what):
    print(json.dumps(what), flush=True)
def frame():
    size, records, text = FRAME.unpack(sys.stdin.buffer.read(FRAME.size))
    return json.loads(sys.stdin.buffer.read(size))
here = pathlib.Path(sys.argv[1])
doomed = here / "doomed"
if doomed.exists() and (left := int(doomed.read_text())):
    doomed.write_text(str(left - 1))
    sys.exit(1)
frame()
while True:
    head = frame()
    if head["kind"] != "task":
        continue
    number, how = head["id"], head["detail"].get("how")
    tell(begun=number)
    if how == "die":
        os._exit(1)
    elif how == "again" and not (here / "locked").exists():
        (here / "locked").touch()
        tell(again=number, why="the database is locked")
    elif how == "slow":
        threading.Timer(0.1, tell, (), {"done": number, "result": {}}).start()
    elif how != "hang":
        tell(done=number, result={})
'''


def entered(store: Store, *hows: str | None) -> list[int]:
    """A task that is to be done in each of these ways, in this order."""
    attempt = store.write(lambda connection: open_attempt(connection, "job", None, {}, 1.0)).attempt_id
    for place, how in enumerate(hows):
        wanted = Wanted("watch", {"how": how}, f"task/{place}")
        store.write(lambda connection, wanted=wanted: tasks.enter(connection, attempt, wanted, 1.0))
    return store.read(lambda connection: list(connection.execute(select(t.tasks.c.id).order_by(t.tasks.c.id)).scalars()))


def states(store: Store) -> list[tuple[str, int]]:
    c = t.tasks.c
    rows = store.read(lambda connection: connection.execute(select(c.state, c.tries).order_by(c.id)).all())
    return [(row.state, row.tries) for row in rows]


def begun(store: Store, limit: int = 8) -> list[int]:
    return [task.id for task in store.write(lambda connection: tasks.begin(connection, ("watch",), limit))]


# --- what the table says


def test_of_those_that_were_cut_off_one_is_begun_at_a_time_beside_the_fresh_ones(store: Store) -> None:
    first, second, *_ = entered(store, None, None)
    assert begun(store) == [first, second]
    store.write(tasks.cut_off)
    attempt = store.write(lambda connection: open_attempt(connection, "other", None, {}, 1.0)).attempt_id
    store.write(lambda connection: tasks.enter(connection, attempt, Wanted("watch"), 1.0))
    fresh = second + 1
    assert begun(store) == [first, fresh]
    assert begun(store) == []
    store.write(lambda connection: tasks.end(connection, first, "done", {}, 1.0))
    assert begun(store) == [second]


def test_one_that_is_cut_off_again_and_again_is_given_up(store: Store) -> None:
    (number,) = entered(store, None)
    for tries in range(1, tasks.TRIES + 1):
        assert states(store) == [("waiting", tries - 1)]
        assert begun(store) == [number]
        store.write(tasks.cut_off)
    assert states(store) == [("failed", tasks.TRIES)]


def test_one_that_is_put_back_has_lost_no_try(store: Store) -> None:
    number, _ = entered(store, None, None)
    begun(store)
    store.write(lambda connection: tasks.put_back(connection, [number]))
    assert states(store) == [("waiting", 0), ("running", 1)]


@pytest.mark.parametrize(("by_then", "expected"), [("ecc_error", 1), ("storage_error", 0)])
def test_an_action_confirms_the_diagnosis_that_it_was_for(store: Store, by_then: str, expected: int) -> None:
    failed = begin(store, number=1)
    judge(store, failed, 1, report("ecc_error"))
    values = {"key": "k", "kind": "restart", "nodes": [], "why": "w", "state": "succeeded", "reason": "ecc_error"}
    values |= {"attempt_id": failed.attempt_id, "created": 1.0, "changed": 1.0}
    store.write(lambda connection: connection.execute(insert(t.actions).values(**values)))
    store.write(lambda connection: improve(connection, failed.attempt_id, report(by_then), 5.0, 6.0))
    assert store.write(tasks.confirmed_by_actions) == 0, "no later attempt has ended"
    went_well = begin(store, number=2).attempt_id
    ended = update(t.attempts).where(t.attempts.c.id == went_well).values(state="ended", outcome="healthy")
    store.write(lambda connection: connection.execute(ended))
    assert store.write(tasks.confirmed_by_actions) == expected
    (task,) = store.write(lambda connection: tasks.begin(connection, ("confirm",), 8)) or [None]
    assert (task.detail if task is not None else None) == ({"by": "action", "reason": "ecc_error"} if expected else None)


# --- what the service does with its worker process


class Desk:
    """The service's side of the worker, with a stand-in as the worker process."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        script = folder / "agent.py"
        script.write_text(STAND_IN)
        matchers = Matchers(RuleSet.of([]), RuleStore(store), most_workloads=1)
        command = [sys.executable, str(script), str(folder)]
        settings = Settings(data=folder)
        self.learning = Learning(store, matchers, Events(), Telemetry(), settings, lambda: None, worker=command)

    def run(self, *expected: tuple[str, int], within_s: float = 20) -> None:
        """Until the tasks have these states and tries; then an orderly end."""

        async def scene() -> None:
            await self.learning.start()
            try:
                deadline = time.monotonic() + within_s
                while (found := await asyncio.to_thread(states, self.store)) != list(expected):
                    assert time.monotonic() < deadline, found
                    await asyncio.sleep(0.02)
            finally:
                await self.learning.close()

        asyncio.run(scene())


@pytest.fixture
def desk(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(host, "_LOOK_S", 0.05)
    monkeypatch.setattr(worker_process, "_TICK_S", 0.05)
    monkeypatch.setattr(worker_process, "_BACKOFF", Backoff(0.04, 0.05))
    monkeypatch.setattr(worker_process, "_STEADY_S", 0.05)
    return Desk(store, tmp_path)


def test_a_task_that_is_put_off_is_done_without_a_restart(desk: Desk) -> None:
    entered(desk.store, "again")
    desk.run(("done", 1))


@pytest.mark.slow
def test_one_task_that_ends_the_process_takes_no_other_along(desk: Desk) -> None:
    entered(desk.store, "slow", "slow", "slow", "die")
    desk.run(("done", 2), ("done", 2), ("done", 2), ("failed", tasks.TRIES))


@pytest.mark.slow
def test_a_process_that_ends_before_it_begins_a_task_costs_no_try(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "doomed").write_text("4")
    entered(desk.store, None, None)
    desk.run(("done", 1), ("done", 1))


def test_an_orderly_end_costs_no_try(desk: Desk) -> None:
    entered(desk.store, "hang", None)
    desk.run(("running", 1), ("done", 1))
    assert states(desk.store) == [("waiting", 0), ("done", 1)]
