"""How often to save: from what a save costs, and how long such a job runs between failures.

Young's and Daly's answer: after a failure on average half an interval of work is lost, and each save costs some time. With a
cost ``c`` and a time between failures ``M`` the sum of both is least at about ``sqrt(2 c M)``; Daly's form is also right when
``c`` is not small beside ``M``. What is written behind the training costs only what it holds up and slows down, but two writes
cannot overlap: an interval is never shorter than a write.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

ASSUMED_BETWEEN_FAILURES_S: Final = 24 * 3600.0
"""where nobody has measured any"""
ASSUMED_COST_S: Final = 30.0
"""of a save that nobody has measured"""
_SEEN = 200
_COUNTED = 20
_FLEET_WEIGHT: Final = 3.0
"""failures of jobs of one size that count as much as all that is known of the fleet"""


@dataclass(frozen=True, slots=True)
class Interval:
    seconds: float
    lost: float
    """share of the time that is lost by saves and by failures"""
    why: str


def interval(cost_s: float, between_failures_s: float, write_s: float = 0.0) -> Interval:
    """The best one."""
    between = max(1.0, between_failures_s)
    cost = max(1e-3, cost_s)
    best = _daly(cost, between)
    seconds = max(best, write_s, cost)
    share = lost(seconds, cost, between)
    bound = f"; a write takes {write_s:.0f} s, so no shorter one is possible" if seconds > best else ""
    why = f"a save costs {cost:.2g} s, and a failure comes every {between / 3600:.3g} h{bound}"
    return Interval(seconds, share, why)


def _daly(cost: float, between: float) -> float:
    if cost >= 2 * between:
        return between
    ratio = cost / (2 * between)
    return math.sqrt(2 * cost * between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def lost(interval_s: float, cost_s: float, between_failures_s: float) -> float:
    """The share of the time that an interval loses: the saves, and half an interval for each failure."""
    share = cost_s / (interval_s + cost_s) + interval_s / 2 / between_failures_s
    return min(1.0, share)


@dataclass(frozen=True, slots=True)
class Past:
    """What happened to jobs of one size."""

    gpus: int
    hours: float
    """that they ran, all together"""
    failures: int


@dataclass(frozen=True, slots=True)
class Between:
    """The time between failures of a job."""

    seconds: float
    why: str


def between_failures(gpus: int, past: Iterable[Past]) -> Between:
    """For a job of this size, by what happened to others.

    Failures come with GPU hours: twice the GPUs fail twice as often. The rate of jobs of about this size (half to twice as many
    GPUs) is shrunk towards that of the fleet, and the fleet's towards the assumed one: little experience moves little.
    """
    known = list(past)
    alike = [one for one in known if gpus / 2 < one.gpus < gpus * 2]
    assumed = ASSUMED_BETWEEN_FAILURES_S / 3600 * gpus
    fleet = (_failures(known) + 1) / (_gpu_hours(known) + assumed)
    own = (_failures(alike) + _FLEET_WEIGHT) / (_gpu_hours(alike) + _FLEET_WEIGHT / fleet)
    hours = sum(one.hours for one in alike)
    why = f"{_failures(alike)} failures in {hours:,.0f} h of jobs of about {gpus:,} GPUs, {_failures(known)} of all jobs"
    return Between(3600 / (own * gpus), why)


def _failures(past: Iterable[Past]) -> int:
    return sum(one.failures for one in past)


def _gpu_hours(past: Iterable[Past]) -> float:
    return sum(one.gpus * one.hours for one in past)


@dataclass(frozen=True, slots=True)
class Present:
    """What the present interval of a training costs, beside the best one."""

    interval_s: float
    """between the last saves: the median"""
    cost_s: float
    """of one save"""
    cost_known: bool
    """False: nobody said, and it is assumed"""
    between_failures_s: float
    lost: float
    """share of the time"""
    best_s: float
    best_lost: float


def present(saved_at: Iterable[float], costs: Iterable[float], between_failures_s: float) -> Present | None:
    """By the times of the saves of one attempt, and what some of them cost. None for fewer than three."""
    times = sorted(saved_at)[-_COUNTED:]
    gaps = sorted(later - earlier for earlier, later in pairwise(times) if later > earlier)
    if len(gaps) < 2:
        return None
    known = list(costs)[-_COUNTED:]
    cost = sum(known) / len(known) if known else ASSUMED_COST_S
    now = gaps[len(gaps) // 2]
    best = interval(cost, between_failures_s)
    seconds = best.seconds if best.lost < (share := lost(now, cost, between_failures_s)) else now
    return Present(now, cost, bool(known), between_failures_s, share, seconds, min(best.lost, share))


class Pace:
    """What a save costs, as seen from the training: how long it stands still, and how much longer steps take meanwhile."""

    def __init__(self) -> None:
        self._free: deque[float] = deque(maxlen=_SEEN)
        self._slowed = 0.0
        self._during = 0
        self._costs: deque[float] = deque(maxlen=8)
        self._stood: float | None = None

    def step(self, seconds: float, writing: bool) -> None:
        """A step took so long. ``writing``: while a checkpoint was written."""
        if writing:
            self._slowed += seconds
            self._during += 1
        else:
            self._free.append(seconds)

    def saved(self, stood_s: float) -> None:
        """A save held the training up. What the one before slowed down is settled by now."""
        self._settle()
        self._stood = stood_s

    def _settle(self) -> None:
        if self._stood is not None:
            self._costs.append(self._stood + self.slowed_s)
        self._slowed, self._during, self._stood = 0.0, 0, None

    @property
    def step_s(self) -> float | None:
        """A step while nothing is written: the median."""
        return sorted(self._free)[len(self._free) // 2] if self._free else None

    @property
    def slowed_s(self) -> float:
        """By how much the present write has slowed the steps so far, all together."""
        usual = self.step_s
        return max(0.0, self._slowed - self._during * usual) if usual is not None else 0.0

    @property
    def cost_s(self) -> float | None:
        """Of one save: the mean of the last ones."""
        known = [*self._costs, *([self._stood + self.slowed_s] if self._stood is not None else [])]
        return sum(known) / len(known) if known else None
