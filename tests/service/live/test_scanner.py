"""One thread, many attempts: each in its turn, none twice at a time, again when it is due, and never after it was let go."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from diagnose.matching.matcher import Matcher
from service.live.scanner import Scanner, Turn
from tests.support.live import Hands, until


class Piece:
    """What is worked on here: so many slices, and then something that is due."""

    def __init__(self, name: str, log: list[str], slices: int = 1, due: float = 0.0) -> None:
        self.owner, self.turn, self.kind = (name, 1), Turn(), f"kind of {name}"
        self.left, self.due, self._log = slices, due, log
        self.leisure = 0.0
        self.at_leisure: list[bool] = []
        self.fails = self.waits = False
        self.matchers: list[Any] = []
        self.held = threading.Event()
        self.held.set()
        self.at_work = threading.Event()

    @property
    def idle(self) -> bool:
        return not (self.left or self.turn.scheduled or self.turn.working)

    def work(self, matcher: Matcher, *, at_leisure: bool) -> bool:
        assert self.turn.working
        self.at_leisure.append(at_leisure)
        self._log.append(self.owner[0])
        self.matchers.append(matcher)
        self.at_work.set()
        assert self.held.wait(20)
        if self.fails:
            self.fails = False
            raise ValueError("a record that cannot be read")
        self.left = max(0, self.left - 1)
        return self.left > 0

    def next_due(self) -> float:
        return self.due

    def next_leisure(self) -> float:
        return self.leisure


class Own:
    """Matchers that are only told from one another."""

    def open(self, scanner: int) -> Any:
        return None

    def of(self, scanner: int, workload: str | None) -> Any:
        return scanner, workload


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def scanner(hands: Hands) -> Iterator[Scanner]:
    made = Scanner(3, Own(), hands.clock)
    yield made
    made.close()


def test_those_with_much_to_read_take_turns(scanner: Scanner) -> None:
    log: list[str] = []
    for piece in (Piece("a", log, 3), Piece("b", log, 2), Piece("c", log)):
        scanner.schedule(piece)
    scanner.start()
    until(lambda: len(log) == 6)
    assert log == ["a", "b", "c", "a", "b", "a"]


def test_each_is_read_with_the_matcher_of_its_workload(scanner: Scanner) -> None:
    piece = Piece("a", [])
    scanner.schedule(piece)
    scanner.start()
    until(lambda: piece.matchers == [(3, "kind of a")])


def test_who_is_scheduled_twice_is_worked_on_once_and_again_if_it_was_at_work(scanner: Scanner) -> None:
    log: list[str] = []
    piece, last = Piece("a", log), Piece("z", log)
    for _ in range(3):
        scanner.schedule(piece)
    piece.held.clear()
    scanner.start()
    assert piece.at_work.wait(20)
    scanner.schedule(piece)  # what comes now was not seen by the work that is under way
    scanner.schedule(piece)
    scanner.schedule(last)
    piece.held.set()
    until(lambda: "z" in log)
    assert log == ["a", "a", "z"]


def test_what_is_due_is_looked_at_then_and_not_before(scanner: Scanner, hands: Hands) -> None:
    log: list[str] = []
    piece, poke = Piece("a", log, due=hands.clock.steady() + 10), Piece("z", log)
    scanner.schedule(piece)
    scanner.start()
    until(lambda: piece.turn.due)
    for passed, wanted in ((9.9, ["a", "z"]), (10.0, ["a", "z", "a", "z"])):
        hands.passed = passed
        piece.due = 0.0
        scanner.schedule(poke)  # so that it looks at the clock
        until(lambda wanted=wanted: len(log) == len(wanted))
        assert sorted(log) == sorted(wanted)


def test_an_earlier_time_goes_before_a_later_one(scanner: Scanner, hands: Hands) -> None:
    log: list[str] = []
    piece, poke = Piece("a", log, due=hands.clock.steady() + 10), Piece("z", log)
    scanner.schedule(piece)
    scanner.start()
    until(lambda: piece.turn.due)
    for due in (20, 5):
        piece.due = 5_000.0 + due
        before = len(log)
        scanner.schedule(piece)
        until(lambda before=before: len(log) > before and not piece.turn.working)
    piece.due = 0.0
    hands.passed = 5.0
    scanner.schedule(poke)
    until(lambda: log.count("a") == 4)
    hands.passed = 10.0
    scanner.schedule(poke)
    until(lambda: log.count("z") == 2)
    assert log.count("a") == 4, "the later time is of no account any more"


def test_what_can_wait_is_done_once_the_thread_has_read_nothing_for_a_moment(scanner: Scanner, hands: Hands) -> None:
    log: list[str] = []
    piece, reader, poke = Piece("a", log), Piece("r", log), Piece("z", log)
    piece.leisure = hands.clock.steady() + 1
    reader.waits = True
    scanner.schedule(piece)
    scanner.start()
    until(lambda: piece.turn.leisure)
    hands.passed = 1.0
    scanner.schedule(reader)  # its time has come, but another one is read
    until(lambda: "r" in log and not reader.turn.working)
    assert log == ["a", "r"]
    hands.passed = 1.02
    scanner.schedule(poke)
    until(lambda: "z" in log and not poke.turn.working)
    assert log == ["a", "r", "z"], "that is not a moment yet"
    piece.leisure = 0.0
    hands.passed = 1.04
    scanner.schedule(poke)
    until(lambda: log.count("a") == 2 and not piece.turn.working)
    assert piece.at_leisure == [False, True]
    assert piece.turn.leisure == 0.0
    scanner.schedule(piece)
    until(lambda: log.count("a") == 3)
    assert piece.at_leisure[-1] is False, "now it was asked for"


def test_of_two_times_for_leisure_the_later_one_counts(scanner: Scanner, hands: Hands) -> None:
    log: list[str] = []
    piece, poke = Piece("a", log), Piece("z", log)
    scanner.start()
    for leisure in (1.0, 5.0):
        piece.leisure = hands.clock.steady() + leisure
        scanner.schedule(piece)
        until(lambda: piece.turn.leisure == piece.leisure)
    for passed, wanted in ((1.5, 2), (5.5, 3)):
        hands.passed = passed
        piece.leisure = 0.0 if wanted == 3 else piece.leisure
        scanner.schedule(poke)
        until(lambda passed=passed: log.count("z") == (1 if passed == 1.5 else 2) and not poke.turn.working)
        until(lambda wanted=wanted: log.count("a") == wanted)
        assert log.count("a") == wanted


def test_an_error_ends_neither_the_thread_nor_the_rest_of_the_attempt(scanner: Scanner, caplog: Any) -> None:
    log: list[str] = []
    bad, good = Piece("bad", log), Piece("good", log)
    bad.fails = bad.waits = True
    scanner.schedule(bad)
    scanner.schedule(good)
    scanner.start()
    until(lambda: len(log) == 3)
    assert log == ["bad", "good", "bad"]
    assert "reading job bad attempt 1" in caplog.text


def test_after_an_error_nothing_is_tried_again_where_nothing_waits(scanner: Scanner) -> None:
    log: list[str] = []
    bad, good = Piece("bad", log), Piece("good", log)
    bad.fails = True
    scanner.schedule(bad)
    scanner.start()
    until(lambda: log and not bad.turn.working)
    scanner.schedule(good)
    until(lambda: "good" in log)
    assert log == ["bad", "good"]


def test_only_who_has_nothing_to_do_is_let_go_and_never_worked_on_again(scanner: Scanner, hands: Hands) -> None:
    log: list[str] = []
    piece, poke = Piece("a", log, due=hands.clock.steady() + 1), Piece("z", log)
    scanner.adopt(piece)
    assert scanner.attempts == 1
    assert not scanner.release(piece), "it waits for its turn"
    piece.held.clear()
    scanner.start()
    assert piece.at_work.wait(20)
    assert not scanner.release(piece), "it is at work"
    piece.held.set()
    until(lambda: scanner.release(piece))
    assert (scanner.attempts, piece.turn.closed) == (0, True)
    scanner.schedule(piece)
    hands.passed = 2.0  # its time comes
    scanner.schedule(poke)
    until(lambda: "z" in log)
    assert log == ["a", "z"]


def _come_and_gone(scanner: Scanner, due: float) -> list[weakref.ref[Piece]]:
    """Two hundred that were read, wait for something that is due then, and were let go."""
    log: list[str] = []
    pieces = [Piece(str(number), log, due=due) for number in range(200)]
    for piece in pieces:
        scanner.adopt(piece)
    until(lambda: len(log) == len(pieces))
    for piece in pieces:
        until(functools.partial(scanner.release, piece))
    return [weakref.ref(piece) for piece in pieces]


def test_who_was_let_go_leaves_the_memory_though_a_timer_of_it_is_due_in_hours(scanner: Scanner, hands: Hands) -> None:
    scanner.start()
    known = _come_and_gone(scanner, hands.clock.steady() + 7200)
    gc.collect()
    assert sum(one() is not None for one in known) <= 65  # so many timers may be old, and one is in the scanner's hands


def test_it_stops_though_there_is_more_to_read(scanner: Scanner) -> None:
    piece = Piece("a", [], slices=1 << 60)
    scanner.schedule(piece)
    scanner.start()
    assert piece.at_work.wait(20)
    scanner.close()
    assert not scanner._thread.is_alive()
    assert scanner.prepared.is_set()
