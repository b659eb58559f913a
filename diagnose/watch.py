"""Values that stand out of their series as it streams by: not a number, or far above what came shortly before.

This decides which metric lines are worth keeping, cheaply and whatever the bytes were cut into; whether a job *failed* of
them is for the detectors to say. Nothing here looks ahead.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from diagnose.metrics import Column

_HISTORY = 32
_GROUP = 8
_FREELY = 50


class Watch:
    """One series. ``factor``: how far above the median of the recent past a value must be."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: deque[float] = deque(maxlen=_HISTORY)
        self._until = 2
        """values until the limit is set anew: soon at first, then every group"""
        self._limit = math.inf
        self._found = 0

    def notable(self, column: Column, summarise: Any) -> list[int]:
        """Which values of ``column`` stand out."""
        values, size = column.values, len(column.values)
        found: list[int] = []
        at = 0
        while at < size:
            end = min(size, at + self._until)
            finite, _, _, _, most, _ = summarise(values, at, end)
            if finite < end - at or most > self._limit:
                for index in range(at, end):
                    if (not math.isfinite(values[index]) or values[index] > self._limit) and self._worth_it():
                        found.append(index)
            self._recent.extend(value for value in values[at:end] if math.isfinite(value))
            self._until -= end - at
            if not self._until:
                self._until = _GROUP
                self._set_limit()
            at = end
        return found

    @property
    def state(self) -> tuple[list[float], int, float, int]:
        """(recent values, how many until the limit is set anew, the limit, how many were found)"""
        return list(self._recent), self._until, self._limit, self._found

    @state.setter
    def state(self, state: tuple[list[float], int, float, int]) -> None:
        recent, self._until, self._limit, self._found = state
        self._recent = deque(recent, maxlen=_HISTORY)

    def _worth_it(self) -> bool:
        """The first ones, then ever fewer: a job that prints nan for a week must not be kept whole."""
        self._found += 1
        return self._found <= _FREELY or (self._found & (self._found - 1)) == 0

    def _set_limit(self) -> None:
        if not self._recent:
            return
        ordered = sorted(self._recent)
        median = ordered[len(ordered) // 2]
        spread = sorted(abs(value - median) for value in ordered)[len(ordered) // 2]
        self._limit = median + max((self._factor - 1) * abs(median), 8 * spread)
