"""Scores of a checkpoint and of an earlier one -> what fell by more than chance.

Both were asked the same samples, so each sample is compared with itself. How much of the mean difference is chance is found by
drawing samples again and again (bootstrap). A higher score counts as better. Scores
without a value for each sample are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.evaluate.merging import Scores

_DRAWS = 1000
FALSE_ALARMS = 0.01
"""the chance that a checkpoint that is as good as the earlier one gives any alarm"""
_FEWEST = 20
"""samples, below which nothing is said"""


@dataclass(frozen=True, slots=True)
class Fall:
    """A score that is lower than before."""

    dataset: str
    score: str
    before: float
    now: float
    noise: float
    """standard deviation of the difference by chance"""
    chance: float
    """of a difference like this if nothing had changed"""


def noise_of(values: Iterable[float]) -> float:
    """The standard deviation of a mean by the choice of its samples."""
    return _noise(np.asarray(list(values), dtype=float))


def falls(before: Mapping[str, Scores], now: Mapping[str, Scores]) -> list[Fall]:
    """data set -> its scores; the worst falls first. The level is shared among all comparisons."""
    pairs = [
        (name, score, np.asarray(before[name].values[score]), np.asarray(values))
        for name, one in sorted(now.items())
        for score, values in sorted(one.values.items())
        if name in before and len(before[name].values.get(score, ())) == len(values) >= _FEWEST
    ]
    found = []
    for name, score, earlier, later in pairs:
        differences = later - earlier
        noise, mean = _noise(differences), float(differences.mean())
        if mean < 0 and noise > 0:
            chance = 0.5 * math.erfc(-mean / noise / math.sqrt(2))
            if chance < FALSE_ALARMS / len(pairs):
                found.append(Fall(name, score, float(earlier.mean()), float(later.mean()), noise, chance))
    return sorted(found, key=lambda one: one.chance)


def _noise(values: np.ndarray) -> float:
    if len(values) < 2:
        return 0.0
    dice = np.random.default_rng(0)
    # A sample is drawn so many times: the same as drawing numbers of samples, without a table of all of them.
    weights = (dice.multinomial(len(values), np.full(len(values), 1 / len(values))) for _ in range(_DRAWS))
    return float(np.std([one @ values / len(values) for one in weights]))
