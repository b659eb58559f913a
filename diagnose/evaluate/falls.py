"""Scores of a checkpoint and of earlier ones -> what fell by more than chance.

All were asked the same samples, so each sample is compared with itself. If nothing had changed, each sample would be as likely
to have become worse as to have become better. How likely the difference is then, is its chance. Scores without a value for each
sample are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.evaluate.merging import Scores

_DRAWS = 1000
FALSE_ALARMS = 0.01
"""the chance that a checkpoint that is as good as the earlier ones gives any alarm"""
_FEWEST = 20
"""samples, below which nothing is said"""
_COUNTED = 1000
"""samples that differ, up to which the chance is counted exactly"""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The scores of a checkpoint that was evaluated before."""

    checkpoint: str
    scores: Mapping[str, Scores]
    """data set -> its scores"""


@dataclass(frozen=True, slots=True)
class Fall:
    """A score that is worse than before."""

    dataset: str
    score: str
    against: str
    """the earlier checkpoint"""
    before: float
    now: float
    noise: float
    """standard deviation of the difference by the choice of samples"""
    chance: float
    """of a difference like this if nothing had changed"""


def noise_of(values: Iterable[float]) -> float:
    """The standard deviation of a mean by the choice of its samples: drawn again and again (bootstrap)."""
    return _noise(np.asarray(list(values), dtype=float))


def falls(before: Sequence[Earlier], now: Mapping[str, Scores]) -> list[Fall]:
    """``before``: the nearest first. What fell is told once, against the nearest of them; the least likely by chance first.
    The level is shared among all comparisons.
    """
    pairs = [
        (earlier.checkpoint, name, score, np.asarray(earlier.scores[name].values[score]), np.asarray(values))
        for earlier in before
        for name, one in sorted(now.items())
        for score, values in sorted(one.values.items())
        if name in earlier.scores and len(earlier.scores[name].values.get(score, ())) == len(values) >= _FEWEST
    ]
    found: dict[tuple[str, str], Fall] = {}
    for checkpoint, name, score, earlier_values, values in pairs:
        if (name, score) in found:
            continue
        differences = values - earlier_values
        chance = chance_of(-differences if score in now[name].lower else differences)
        if chance < FALSE_ALARMS / len(pairs):
            means = float(earlier_values.mean()), float(values.mean())
            found[name, score] = Fall(name, score, checkpoint, *means, _noise(differences), chance)
    return sorted(found.values(), key=lambda one: one.chance)


def chance_of(differences: np.ndarray) -> float:
    """Of a sum as low as theirs or lower, if each had either sign with the same chance."""
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    if len(moved) <= _COUNTED and np.all(np.abs(moved) == abs(moved[0])):  # right or wrong: count
        many, rose = len(moved), int(np.count_nonzero(moved > 0))
        return float(sum(math.comb(many, number) for number in range(rose + 1)) / 2**many)
    return 0.5 * math.erfc(-float(moved.sum()) / float(np.sqrt(np.square(moved).sum())) / math.sqrt(2))


def _noise(values: np.ndarray) -> float:
    if len(values) < 2:
        return 0.0
    dice = np.random.default_rng(0)
    # A sample is drawn so many times: the same as drawing numbers of samples, without a table of all of them.
    weights = (dice.multinomial(len(values), np.full(len(values), 1 / len(values))) for _ in range(_DRAWS))
    return float(np.std([one @ values / len(values) for one in weights]))
