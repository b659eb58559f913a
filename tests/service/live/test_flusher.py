"""Into the database, in which order, many at once; again while it is away; one that it refuses does not hold up the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from service.live.flusher import Flusher
from service.store import Store
from service.store import tables as t
from service.store.attempts import Opened
from service.store.flush import Flush, JudgedReport
from service.telemetry import Telemetry
from tests.service.store.test_store import begin, flush, report
from tests.support.live import Hands, store_in, until


class Door(Store):
    """A real database. The door to it can be held, and be shut as if it were away."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.tries = 0
        self.away = False
        self.held: threading.Event | None = None
        self.at_door = threading.Event()

    def write(self, work: Callable[[Any], Any]) -> Any:
        if threading.current_thread().name == "flusher":
            self.tries += 1
            if self.held is not None:
                self.at_door.set()
                assert self.held.wait(20)
            if self.away:
                raise OperationalError("insert", {}, Exception("no route to the database\nand more"))
        return super().write(work)

    def hold(self) -> threading.Event:
        self.at_door.clear()
        self.held = threading.Event()
        return self.held


class Case:
    """A flusher at work, and what it said was done."""

    def __init__(self, folder: Path) -> None:
        store_in(folder).close()
        self.hands = Hands()
        self.store = Door(f"sqlite:///{folder / 'diagnose.db'}")
        self.telemetry = Telemetry()
        self.flusher = Flusher(self.store, self.telemetry, self.hands.clock)
        self.done: list[Flush] = []

    def put(self, *flushes: Flush) -> None:
        for one in flushes:
            self.flusher.put(one, self.done.append)

    def opened(self, count: int) -> list[Opened]:
        return [begin(self.store, f"job{number}") for number in range(count)]

    def lsn(self, opened: Opened) -> int:
        query = select(t.attempts.c.lsn).where(t.attempts.c.id == opened.attempt_id)
        return int(self.store.read(lambda connection: connection.execute(query).scalar_one()))

    def flushes(self, result: str) -> float:
        return float(self.telemetry.flushes.labels(result)._value.get())

    @property
    def database_up(self) -> bool:
        return bool(self.telemetry.database_up._value.get())


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    made.flusher.start()
    yield made
    made.store.away = False
    if made.store.held is not None:
        made.store.held.set()
    made.flusher.close()
    assert not made.flusher._thread.is_alive()
    made.store.close()


def refused(opened: Opened, lsn: int) -> Flush:
    """Two of its lines have one place: the table has none for the second."""
    one = flush(opened, lsn, rows=1)
    one.rows *= 2
    return one


def test_what_is_stored_is_done(case: Case) -> None:
    (opened,) = case.opened(1)
    one = flush(opened, 7, rows=3)
    case.put(one)
    until(lambda: case.done)
    assert case.done == [one]
    assert case.lsn(opened) == 7
    assert case.store.read(lambda c: c.execute(select(func.count()).select_from(t.kept_lines)).scalar()) == 3
    assert (case.flushes("stored"), case.flushes("failed"), case.flusher.up, case.database_up) == (1, 0, True, True)
    assert case.flusher.last_error is None


def test_what_cannot_be_said_of_one_holds_up_no_other(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """Its thread died of this once."""

    def fail(_: Flush) -> None:
        raise OSError("read-only file system")

    first, second = case.opened(2)
    case.flusher.put(flush(first, 7), fail)
    until(lambda: case.lsn(first) == 7)
    case.put(flush(second, 8))
    until(lambda: case.done)
    assert (case.lsn(second), case.flusher._thread.is_alive()) == (8, True)
    assert "was stored, and that could not be said" in caplog.text


def test_what_waits_goes_in_one_transaction_with_judged_reports_first(case: Case) -> None:
    opened = case.opened(5)
    held = case.store.hold()
    case.put(flush(opened[0], 1))
    assert case.store.at_door.wait(20)
    judged = JudgedReport(report(), True, 9.0)
    case.put(flush(opened[1], 1), flush(opened[2], 1, judged=judged), flush(opened[3], 1), flush(opened[4], 1, judged=judged))
    held.set()
    until(lambda: len(case.done) == 5)
    assert [one.attempt_id for one in case.done] == [opened[n].attempt_id for n in (0, 2, 4, 1, 3)]
    assert case.store.tries == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "rows", "transactions"),
    [(64, 0, 1), (65, 0, 2), (2, 20_000, 2), (2, 19_999, 1), (3, 10_000, 2)],
    ids=["64", "65", "many-rows-each", "nearly-as-many", "together"],
)
def test_a_transaction_takes_in_so_many_jobs_and_so_many_rows(case: Case, count: int, rows: int, transactions: int) -> None:
    opened = case.opened(count + 1)
    held = case.store.hold()
    case.put(flush(opened[-1], 1))
    assert case.store.at_door.wait(20)
    for one in opened[:-1]:
        case.put(flush(one, 1, rows=rows))
    held.set()
    until(lambda: len(case.done) == count + 1, 60)
    assert case.store.tries == 1 + transactions


@pytest.mark.slow
def test_a_database_that_is_away_gets_all_of_it_when_it_is_back_and_in_order(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "diagnose.flusher")
    first, second, third = case.opened(3)
    held = case.store.hold()
    case.put(flush(begin(case.store, "before"), 1))
    assert case.store.at_door.wait(20)
    case.put(flush(first, 1), flush(second, 1))  # both at once, therefore
    case.store.away = True
    held.set()
    until(lambda: case.store.tries >= 2)
    assert (case.flusher.up, case.database_up, case.flusher.last_error) == (False, False, "no route to the database")
    case.put(flush(third, 1, judged=JudgedReport(report(), True, 9.0)))
    until(lambda: case.store.tries >= 4)
    assert (case.done, case.flushes("stored")) == ([], 0)
    assert case.flushes("failed") >= 3
    case.store.away = False
    until(lambda: len(case.done) == 4)
    order = [one.attempt_id for one in case.done[1:]]
    assert sorted(order) == sorted(one.attempt_id for one in (first, second, third))
    assert order.index(first.attempt_id) < order.index(second.attempt_id)
    assert (case.flusher.up, case.database_up) == (True, True)
    assert [record.getMessage() for record in caplog.records] == [
        "the database is away: no route to the database",
        "the database is back",
    ], "each is said once"


def test_what_one_does_twice_stays_in_order_over_a_time_away(case: Case) -> None:
    (opened,) = case.opened(1)
    case.store.away = True
    case.put(flush(opened, 1, rows=1))
    until(lambda: case.store.tries >= 2)
    case.store.away = False
    until(lambda: case.done)
    case.put(flush(opened, 2, rows=1, first=1))
    until(lambda: len(case.done) == 2)
    assert case.lsn(opened) == 2


def test_one_that_is_refused_does_not_hold_up_the_others(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    opened = case.opened(4)
    held = case.store.hold()
    case.put(flush(opened[0], 1))
    assert case.store.at_door.wait(20)
    bad = refused(opened[1], 5)
    case.put(bad, flush(opened[2], 1), flush(opened[3], 1))
    held.set()
    until(lambda: len(case.done) == 3)
    assert [one.attempt_id for one in case.done] == [opened[n].attempt_id for n in (0, 2, 3)]
    assert [case.lsn(one) for one in opened] == [1, 0, 1, 1]
    assert case.flusher.up, "it is not away"
    assert "UNIQUE constraint failed" in str(case.flusher.last_error)
    assert f"job {opened[1].job_id} attempt 1 cannot be stored" in caplog.text
    assert case.flushes("failed") == 1
    # It is tried again by itself, and only after a while.
    tries = case.store.tries
    bad.rows.pop()
    case.hands.passed = 29.9
    case.put(flush(opened[2], 2))
    until(lambda: len(case.done) == 4)
    assert (case.store.tries, case.lsn(opened[1])) == (tries + 1, 0)
    case.hands.passed = 30.0
    case.put(flush(opened[3], 2))
    until(lambda: len(case.done) == 6)
    assert case.lsn(opened[1]) == 5
    assert case.store.tries == tries + 2, "with what else waits"


def test_a_refused_one_alone_is_tried_twice_and_set_aside(case: Case) -> None:
    opened = case.opened(2)
    case.put(refused(opened[0], 1))
    until(lambda: case.store.tries == 2)
    case.put(flush(opened[1], 1))
    until(lambda: case.done)
    assert case.store.tries == 3


def test_that_the_database_is_back_is_seen_also_where_one_is_refused(case: Case) -> None:
    opened = case.opened(2)
    case.store.away = True
    case.put(flush(opened[0], 1), refused(opened[1], 1))
    until(lambda: not case.flusher.up)
    case.store.away = False
    until(lambda: case.done)
    assert (case.flusher.up, case.database_up, case.lsn(opened[0])) == (True, True, 1)


# --- stopping


def test_what_waits_is_written_before_it_stops(tmp_path: Path) -> None:
    case = Case(tmp_path)
    opened = case.opened(70)
    case.put(*(flush(one, 1) for one in opened))
    case.flusher.start()
    case.flusher.close()
    assert len(case.done) == 70
    assert not case.flusher._thread.is_alive()
    case.store.close()


def test_it_stops_at_once_where_the_database_is_away(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (opened,) = case.opened(1)
    case.store.away = True
    case.put(flush(opened, 1))
    case.flusher.start()
    until(lambda: case.store.tries >= 1)
    case.flusher.close(timeout_s=15)
    assert not case.flusher._thread.is_alive()
    assert case.done == []
    case.store.close()


def test_it_stops_with_nothing_to_do(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.flusher.start()
    case.flusher.close(timeout_s=15)
    assert not case.flusher._thread.is_alive()
    assert case.store.tries == 0
    case.store.close()
