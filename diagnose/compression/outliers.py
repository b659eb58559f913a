"""Values of a series -> which of them stand out: not a number, or far above the values just before.

This decides which metric lines are kept. It must be cheap, and must not depend on how the bytes were cut. It never looks ahead.
Whether the job *failed* because of such values is decided by the detectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from diagnose.matching.series import Column

# The native core has the first two numbers as well.
_HISTORY = 32
_GROUP = 8
_FREELY = 50


def stand_out(
    values: Any, factor: float, recent: Sequence[float], until: int, limit: float
) -> tuple[list[int], list[float], int, float]:
    """(the numbers of ``values`` that are not finite or above the limit, recent values, until, limit)."""
    found: list[int] = []
    recent = list(recent)
    for index, value in enumerate(values):
        finite = math.isfinite(value)
        if not finite or value > limit:
            found.append(index)
        if finite:
            recent.append(value)
        until -= 1
        if not until:
            until = _GROUP
            del recent[:-_HISTORY]
            limit = _limit(recent, factor) if recent else limit
    return found, recent[-_HISTORY:], until, limit


def _limit(recent: Sequence[float], factor: float) -> float:
    ordered = sorted(recent)
    median = ordered[len(ordered) // 2]
    spread = sorted(abs(value - median) for value in ordered)[len(ordered) // 2]
    return median + max((factor - 1) * abs(median), 8 * spread)


class Watch:
    """Watches one series. ``factor``: a value stands out if it is so many times the median of the recent past."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: list[float] = []
        self._until = 2
        """values until the limit is set again: soon at first, then after each group"""
        self._limit = math.inf
        self._found = 0

    def notable(self, column: Column, search: Any = stand_out) -> list[int]:
        """Which values of ``column`` stand out. ``search`` is ``stand_out`` or its native twin."""
        found, self._recent, self._until, self._limit = search(
            column.values, self._factor, self._recent, self._until, self._limit
        )
        return [index for index in found if self._worth_it()]

    @property
    def state(self) -> tuple[list[float], int, float, int]:
        """(recent values, values until the limit is set again, limit, number found)."""
        return list(self._recent), self._until, self._limit, self._found

    @state.setter
    def state(self, state: tuple[list[float], int, float, int]) -> None:
        recent, self._until, self._limit, self._found = state
        self._recent = list(recent)

    def _worth_it(self) -> bool:
        """Keep the first ones, then ever fewer: a job that prints nan for a week must not be kept whole."""
        self._found += 1
        return self._found <= _FREELY or (self._found & (self._found - 1)) == 0
