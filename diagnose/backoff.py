"""How long to wait before the next try: longer after each failure, up to a limit, and partly random.

It keeps no count and never sleeps: the caller counts its failures in a row and does the waiting.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between tries of one thing."""

    first_s: float
    """after the first failure"""
    most_s: float
    """after any number of failures"""
    factor: float = 2.0
    """each wait is so many times the one before"""
    spread: float = 0.0
    """the random share of a wait, so that many clients do not come back together: 0.2 means 80 to 100 %"""

    def after(self, failures: int, chance: Callable[[float, float], float] = random.uniform) -> float:
        """The wait after so many failures in a row, in seconds. ``chance`` draws a number between two."""
        steps = min(max(failures - 1, 0), _MOST_STEPS)
        whole = min(self.first_s * self.factor**steps, self.most_s)
        return chance((1 - self.spread) * whole, whole) if self.spread else whole
