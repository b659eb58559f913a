"""Which checkpoint is next. The clock and the evaluation are made up: they end when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from diagnose.evaluate.arrivals import Arrival, Unfit
from diagnose.evaluate.coordinator import Wish
from diagnose.evaluate.watching import Ending, Watch, ordered


def arrival(step: int, at: float | None = None) -> Arrival:
    return Arrival(Path(f"/ckpt/step-{step}"), at if at is not None else float(step), step)


def names(steps: list[Arrival]) -> list[int | None]:
    return [one.step for one in steps]


def test_the_newest_comes_first() -> None:
    choices, overtaken = ordered([arrival(1), arrival(3), arrival(2)], set(), float("-inf"), late=False)
    assert names([one.arrival for one in choices]) == [3, 2, 1]
    assert overtaken == []


def test_what_is_older_than_one_that_is_evaluated_is_left_out_or_comes_later() -> None:
    there, settled = [arrival(1), arrival(2), arrival(3), arrival(4)], {("step-3", 3.0)}

    choices, overtaken = ordered(there, settled, 3.0, late=False)
    assert (names([one.arrival for one in choices]), names(overtaken)) == ([4], [2, 1])
    choices, overtaken = ordered(there, settled, 3.0, late=True)
    assert ([(one.arrival.step, one.is_late) for one in choices], overtaken) == ([(4, False), (2, True), (1, True)], [])


def test_after_a_roll_back_a_lower_step_is_newer() -> None:
    choices, _ = ordered([arrival(900, 9.0), arrival(500, 10.0)], {("step-900", 9.0)}, 9.0, late=False)
    assert names([one.arrival for one in choices]) == [500]


@dataclass
class Training:
    """Writes a checkpoint every so many seconds. An evaluation takes so long, and looks about once a second."""

    takes_s: float
    there: dict[float, Arrival]
    """when it becomes visible -> it"""
    problems: dict[int, Unfit] = field(default_factory=dict)
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    left: dict[int, float] = field(default_factory=dict)
    """step -> what is left of its evaluation"""

    def look(self) -> list[Arrival]:
        return [one for at, one in self.there.items() if at <= self.now]

    def evaluate(self, one: Arrival, turn: Callable[[Wish], None]) -> Ending:
        assert one.step is not None
        wish, left = Wish(), self.left.setdefault(one.step, self.takes_s)
        self.log.append(f"{self.now:.0f}: {one.step}")
        while left > 0 and not (wish.drain or wish.stop):
            self.now, left = self.now + 1, left - 1
            turn(wish)
        self.left[one.step] = left
        return "ended" if left <= 0 else "gave way"

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def watch(self, *, late: bool = False, evaluated: set[tuple[str, float]] | None = None) -> Ending:
        def unfit(one: Arrival, _: bool) -> Unfit | None:
            return self.problems.get(one.step or 0)

        return Watch(
            self.look, unfit, self.evaluate, evaluated or set(), self.said.append, Wish(), 2.0, 30.0, late,
            clock=lambda: self.now, sleep=self.sleep,
        ).run()  # fmt: skip


def test_it_keeps_up_by_leaving_out_what_was_overtaken() -> None:
    """A checkpoint every 10 seconds, and 25 seconds for each evaluation."""
    training = Training(25, {float(at): arrival(at, at) for at in range(10, 90, 10)})

    assert training.watch() == "ended"
    assert [one.split(": ")[1] for one in training.log] == ["10", "30", "60", "80"]
    assert [one.partition(" ")[0] for one in training.said] == ["step-20", "step-50", "step-40", "step-70"]


def test_it_catches_up_later_if_it_is_asked_to_and_gives_way_to_the_next_new_one() -> None:
    training = Training(25, {0.0: arrival(1), 1.0: arrival(2, 2.0), 30.0: arrival(3)} | {0.5: arrival(0, 0.5)})

    assert training.watch(late=True) == "ended"
    assert [one.split(": ")[1] for one in training.log] == ["1", "2", "3", "0"]


def test_one_that_is_late_goes_on_after_it_gave_way() -> None:
    training = Training(20, {0.0: arrival(2), 0.1: arrival(1), 25.0: arrival(3)})

    assert training.watch(late=True) == "ended"
    assert [one.split(": ")[1] for one in training.log] == ["2", "1", "3", "1"]
    assert training.left == {1: 0, 2: 0, 3: 0}
    assert "step-1 gives way to step-3" in training.said


def test_a_new_one_does_not_give_way_or_nothing_would_ever_end() -> None:
    training = Training(20, {0.0: arrival(1), 5.0: arrival(2)})
    assert training.watch() == "ended"
    assert training.log == ["0: 1", "20: 2"]


def test_one_that_is_not_whole_yet_is_looked_at_again() -> None:
    training = Training(5, {0.0: arrival(1), 1.0: arrival(2)}, {2: Unfit("it is still written", for_good=False)})
    sleep = training.sleep

    def later(seconds: float) -> None:
        sleep(seconds)
        if training.now > 12:
            training.problems.clear()

    training.sleep = later  # type: ignore[method-assign]
    assert training.watch() == "ended"
    assert [one.split(": ")[1] for one in training.log] == ["1", "2"]
    assert training.said == ["step-2 waits: it is still written"], "told once"


def test_one_that_is_damaged_is_never_tried_again_unless_it_is_written_again() -> None:
    training = Training(5, {0.0: arrival(1)}, {1: Unfit("it is damaged: w.dat", for_good=True)})
    assert training.watch() == "ended"
    assert training.log == []
    assert training.said == ["step-1 is left out: it is damaged: w.dat"]

    training = Training(5, {0.0: arrival(1), 9.0: arrival(1, 9.0)})
    assert training.watch() == "ended"
    assert len(training.log) == 2


def test_what_earlier_runs_evaluated_is_not_evaluated_again() -> None:
    training = Training(5, {0.0: arrival(1), 0.1: arrival(2), 0.2: arrival(3)})
    training.now = 1.0
    assert training.watch(evaluated={("step-2", 2.0)}) == "ended"
    assert [one.split(": ")[1] for one in training.log] == ["3"]


@pytest.mark.parametrize("wish", [Wish(stop=True), Wish(drain=True)], ids=["stop", "drain"])
def test_it_can_be_stopped_while_it_waits_and_while_it_evaluates(wish: Wish) -> None:
    training, told = Training(50, {0.0: arrival(1)}), Wish()

    def evaluate(one: Arrival, turn: Callable[[Wish], None]) -> Ending:
        told.stop, told.drain = wish.stop, wish.drain
        own = Wish()
        turn(own)
        assert own == wish
        return "stopped"

    watch = Watch(training.look, lambda *_: None, evaluate, set(), lambda _: None, told, 2.0, clock=lambda: 0.0)
    assert watch.run() == "stopped"
    assert watch.run() == "ended"
