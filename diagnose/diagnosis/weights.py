"""Signals -> probabilities, by the weights in ``rules/weights.json``.

The score of a hypothesis is the sum of the weights of its signals. The scores of all hypotheses of a log, with "nothing failed"
among them, become probabilities that sum to 1 (a conditional logit). A person can do the sum by hand from the output of
``diagnose replay --why``.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.diagnosis.calibration import Calibration
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.signals import BY_NAME, SIGNALS
from diagnose.errors import RuleError
from diagnose.knowledge import shipped


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal is worth, and how often answers are right."""

    of: Mapping[str, float]
    calibration: Calibration

    def score(self, signals: Mapping[str, float]) -> float:
        """The sum of the weights."""
        return sum(self.of[name] * value for name, value in signals.items())


@functools.cache
def shipped_weights() -> Weights:
    """The weights that ship with the program."""
    return read(shipped.folder("rules") / "weights.json")


def read(path: Path) -> Weights:
    """The weights in a file. A signal that it does not name keeps the weight from ``signals``."""
    try:
        data = json.loads(path.read_text("utf-8"))
        said = {str(name): float(value) for name, value in data["weights"].items()}
        calibration = Calibration.read(data["calibration"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "make it again with python -m benchmarks.fit"
        raise RuleError(f"the weights cannot be read: {error}", where=str(path), remedy=remedy) from None
    for name, value in said.items():
        if name not in BY_NAME:
            raise RuleError(f"there is no signal {name!r}", where=str(path), remedy="see diagnose/diagnosis/signals.py")
        if value * BY_NAME[name].weight < 0:
            raise RuleError(f"the weight of {name} has the wrong sign", where=str(path), remedy="fit the weights again")
    return Weights({signal.name: said.get(signal.name, signal.weight) for signal in SIGNALS}, calibration)


def spread(hypotheses: Sequence[Hypothesis], weights: Weights) -> None:
    """Score the hypotheses and share out the probability among them."""
    if not hypotheses:
        return
    for one in hypotheses:
        one.score = weights.score(one.signals)
    most = max(one.score for one in hypotheses)
    shares = [math.exp(one.score - most) for one in hypotheses]
    total = sum(shares)
    for one, share in zip(hypotheses, shares, strict=True):
        one.probability = share / total
