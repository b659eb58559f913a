"""How often to save: from what a save costs, and how long such a job runs between failures.

Young's and Daly's answer: after a failure on average half an interval of work is lost, and each save costs some time. With a
cost ``c`` and a time between failures ``M`` the sum of both is least at about ``sqrt(2 c M)``; Daly's form is also right when
``c`` is not small beside ``M``. What is written behind the training costs only what it holds up and slows down, but two writes
cannot overlap: an interval is never shorter than a write.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

ASSUMED_BETWEEN_FAILURES_S: Final = 24 * 3600.0
"""where nobody has measured any"""
_SEEN = 200


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
