"""How much of what was counted may be chance: intervals of rates, and tails of the Poisson distribution."""

from __future__ import annotations

import math


def at_least(count: int, expected: float) -> float:
    """The probability of ``count`` or more events where ``expected`` are."""
    if count <= 0:
        return 1.0
    if expected <= 0:
        return 0.0
    if count <= expected:
        return 1.0 - _sum(0, count - 1, expected)
    return _sum(count, count + 60 + int(12 * math.sqrt(count)), expected)


def _sum(first: int, last: int, expected: float) -> float:
    log = math.log(expected)
    return math.fsum(math.exp(number * log - expected - math.lgamma(number + 1)) for number in range(first, last + 1))


def interval(count: int, share: float = 0.95) -> tuple[float, float]:
    """The means with which ``count`` events, more or fewer, are no surprise (Garwood's exact interval)."""
    tail = (1 - share) / 2
    low = 0.0 if count == 0 else _bisect(lambda mean: at_least(count, mean) < tail, count)
    return low, _bisect(lambda mean: 1 - at_least(count + 1, mean) > tail, count)


def _bisect(below: object, count: int) -> float:
    assert callable(below)
    low, high = 0.0, count + 10 + 6 * math.sqrt(count)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2
