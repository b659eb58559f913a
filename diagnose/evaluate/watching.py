"""Beside a training: which checkpoint is evaluated next, and the loop that does it.

The newest comes first. One that a newer one overtook before it began is left out, or comes later, when there is nothing newer;
then it gives way to the next new one, and goes on afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from diagnose.evaluate.arrivals import Arrival, Unfit
from diagnose.evaluate.coordinator import Wish

Ending = Literal["ended", "gave way", "stopped"]
Name = tuple[str, float]
"""of one checkpoint: what is written again under the same name is another one"""
_TURN_S = 0.2


@dataclass(frozen=True, slots=True)
class Next:
    """What to do now."""

    arrival: Arrival
    is_late: bool
    """a newer one was evaluated before"""


def ordered(
    arrivals: Iterable[Arrival], settled: Collection[Name], scored_until_s: float, *, late: bool
) -> tuple[list[Next], list[Arrival]]:
    """(what could be evaluated, the best choice first; what a newer one overtook)

    ``settled``: those that are evaluated, or never will be; ``scored_until_s``: when the newest of the
    evaluated ones was written; ``late``: whether what is overtaken comes later.
    """
    waiting = sorted(
        (one for one in arrivals if name_of(one) not in settled),
        key=lambda one: (one.written_s, one.step if one.step is not None else -1),
        reverse=True,
    )
    new = [one for one in waiting if one.written_s > scored_until_s]
    old = [one for one in waiting if one.written_s <= scored_until_s]
    choices = [Next(one, is_late=False) for one in new]
    return (choices + [Next(one, is_late=True) for one in old], []) if late else (choices, old)


def name_of(arrival: Arrival) -> Name:
    return arrival.path.name, arrival.written_s


@dataclass(slots=True)
class Watch:
    """The loop. Time is passed in, so tests need not wait."""

    look: Callable[[], Sequence[Arrival]]
    unfit: Callable[[Arrival, bool], Unfit | None]
    """why not, or not yet; whether all of it is read"""
    evaluate: Callable[[Arrival, Callable[[Wish], None]], Ending]
    """evaluates one; calls the function about once a second, which says whether it is to give way"""
    evaluated: Collection[Name]
    """by earlier runs"""
    say: Callable[[str], None]
    wish: Wish
    every_s: float
    idle_s: float | None = None
    """it ends if nothing was there to do for so long"""
    late: bool = False
    between: Callable[[], None] = lambda: None
    """called before each choice, when nothing runs"""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _done: set[Name] = field(default_factory=set)
    _never: set[Name] = field(default_factory=set)
    """those that cannot be evaluated"""
    _told: set[str] = field(default_factory=set)

    def run(self) -> Ending:
        """Until somebody wishes it, or nothing comes any more."""
        self._done.update(self.evaluated)
        busy_at = self.clock()
        while not (self.wish.stop or self.wish.drain):
            self.between()
            chosen = self._choose()
            if chosen is not None:
                ending = self._carry(chosen)
                busy_at = self.clock()
                if ending == "stopped":
                    return "stopped"
            elif self.idle_s is not None and self.clock() - busy_at >= self.idle_s:
                break
            else:
                self._wait()
        self.between()
        return "ended"

    def _choose(self) -> Next | None:
        """The best one that is whole. Those before it are told of once."""
        for one in self._waiting():
            problem = self.unfit(one.arrival, True)
            if problem is None:
                return one
            name = one.arrival.path.name
            self._tell(f"{name} is left out: {problem.why}" if problem.for_good else f"{name} waits: {problem.why}")
            if problem.for_good:
                self._never.add(name_of(one.arrival))
        return None

    def _waiting(self) -> list[Next]:
        until_s = max((at for _, at in self._done), default=float("-inf"))
        waiting, overtaken = ordered(self.look(), self._done | self._never, until_s, late=self.late)
        for one in overtaken:
            self._tell(f"{one.path.name} is left out: a newer one was evaluated before it")
        return waiting

    def _carry(self, chosen: Next) -> Ending:
        looked_at = self.clock()

        def turn(wish: Wish) -> None:
            nonlocal looked_at
            wish.stop, wish.drain = wish.stop or self.wish.stop, wish.drain or self.wish.drain
            if chosen.is_late and not wish.drain and self.clock() - looked_at >= self.every_s:
                looked_at = self.clock()
                # Reading all of it would take long, and the fleet must hear of us meanwhile.
                newer = next((one for one in self._waiting() if not one.is_late and not self.unfit(one.arrival, False)), None)
                if newer is not None:
                    self.say(f"{chosen.arrival.path.name} gives way to {newer.arrival.path.name}")
                    wish.drain = True

        ending = self.evaluate(chosen.arrival, turn)
        if ending == "ended":
            self._done.add(name_of(chosen.arrival))
        return ending

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(text)

    def _wait(self) -> None:
        until = self.clock() + self.every_s
        while (left := until - self.clock()) > 0 and not (self.wish.stop or self.wish.drain):
            self.sleep(min(_TURN_S, left))
