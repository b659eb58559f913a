"""Evaluation scores of checkpoints -> which of them fell behind what was usual before.

A score is compared with the mean of the same score over the last five checkpoints before it. It fell if the difference is more
than chance allows, and is not small either. So one lucky checkpoint sets no bar for all later ones, and a training that was
changed on purpose has a new usual level after five checkpoints.

A fall makes a checkpoint doubtful, never bad. The running training goes on from the same weights, so a restart may, too; but a
roll-back, which has the choice, takes another one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_BEFORE: Final = 5
_CHANCE: Final = 4.0
"""times the noise of the difference: with twenty data sets a checkpoint falls by chance once in some hundred"""
_LITTLE: Final = 0.05
"""smaller falls, as a share, come and go between checkpoints"""


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluation says of a checkpoint."""

    attempt: int
    step: int
    data_set: str
    metric: str
    value: float
    noise: float | None = None
    """the standard deviation by the choice of samples; None: unknown, and then nothing is concluded from it"""
    higher: bool = True
    """whether more is better"""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class _Fall:
    share: float
    said: str


def fallen(scores: Iterable[Score]) -> dict[tuple[int, int], str]:
    """(attempt, step) of the checkpoints that fell behind -> what fell, in one sentence."""
    alike: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for one in scores:
        alike[one.data_set, one.metric].append(one)
    found: dict[tuple[int, int], list[_Fall]] = defaultdict(list)
    for some in alike.values():
        for one in some:
            fall = _fall(one, _before(one, some))
            if fall is not None:
                found[one.attempt, one.step].append(fall)
    return {place: _told(falls) for place, falls in found.items()}


def _before(one: Score, some: Sequence[Score]) -> list[Score]:
    """The last checkpoints before it that have noise. A step that was saved again after a roll-back counts as it is now."""
    latest: dict[int, Score] = {}
    for other in some:
        if other.step < one.step and other.attempt <= one.attempt and other.noise is not None:
            known = latest.get(other.step)
            latest[other.step] = other if known is None or known.attempt < other.attempt else known
    return [latest[step] for step in sorted(latest)[-_BEFORE:]]


def _fall(one: Score, before: Sequence[Score]) -> _Fall | None:
    if one.noise is None or not before:
        return None
    usual = sum(other.value for other in before) / len(before)
    noise = math.hypot(*(other.noise or 0.0 for other in before)) / len(before)
    lost = (usual - one.value) * (1 if one.higher else -1)
    if lost <= _CHANCE * math.hypot(one.noise, noise) or lost <= _LITTLE * abs(usual):
        return None
    mean = f"on average of the {len(before)} checkpoints" if len(before) > 1 else "at the checkpoint"
    said = (
        f"{one.metric} on {one.data_set} is {one.value:.4g} ± {one.noise:.2g}, and was {usual:.4g} ± {noise:.2g} {mean} before"
    )
    return _Fall(lost / abs(usual) if usual else math.inf, said)


def _told(falls: Sequence[_Fall]) -> str:
    """The worst, and how many more."""
    worst = max(falls, key=lambda fall: fall.share)
    more = f"; {len(falls) - 1} more scores fell" if len(falls) > 2 else "; one more score fell" if len(falls) == 2 else ""
    return f"its {worst.said}{more}"
