"""Two series of one quantity -> whether they contradict each other, so that nobody can tell which of them counts.

A log may tell its loss twice: in a progress bar and in a line, of one rank and of all. Small differences are means over other
steps. These are none: other values at the same steps, another size from beginning to end, or one rises while the other falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from diagnose.matching.series import Series

_FEWEST, _COMMON = 20, 5
"""values of each, and steps that both tell: with fewer nothing can be said"""
_APART: Final = 0.1
"""so much of the greater one is another value at one step"""
_TIMES: Final = 2.0
"""without common steps one is so many times the other, at the beginning and at the end"""


def contradict(one: Series, other: Series) -> bool:
    """Whether these two cannot both be right."""
    if min(one.count - one.not_finite, other.count - other.not_finite) < _COMMON:
        return False
    mine, theirs = _by_step(one), _by_step(other)
    common = mine.keys() & theirs.keys()
    if one.width == other.width and len(common) >= _COMMON:
        differ = sum(_apart(mine[step], theirs[step], 1 / (1 - _APART)) for step in common)
        return 2 * differ > len(common)
    return _of_another_size_or_direction(_means(one), _means(other))


def _of_another_size_or_direction(mine: Sequence[float], theirs: Sequence[float]) -> bool:
    if min(len(mine), len(theirs)) < _FEWEST:
        return False
    (first, last), (begin, end) = _ends(mine), _ends(theirs)
    sizes = _apart(first, begin, _TIMES) and _apart(last, end, _TIMES)
    return sizes or (_rise(first, last) * _rise(begin, end) < 0)


def _apart(one: float, other: float, times: float) -> bool:
    less, more = sorted((abs(one), abs(other)))
    return one * other < 0 or more > times * less


def _rise(first: float, last: float) -> int:
    """1 where it rose, -1 where it fell, 0 where it did neither by much."""
    return 0 if not _apart(first, last, 1 / (1 - _APART)) else 1 if last > first else -1


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and the last quarter."""
    part = len(values) // 4
    return sorted(values[:part])[part // 2], sorted(values[-part:])[part // 2]


def _by_step(series: Series) -> dict[float, float]:
    columns = (series.column(name) for name in ("step", "finite", "total"))
    return {step: total / finite for step, finite, total in zip(*columns, strict=True) if finite and step == step}


def _means(series: Series) -> list[float]:
    return [total / finite for finite, total in zip(series.column("finite"), series.column("total"), strict=True) if finite]
