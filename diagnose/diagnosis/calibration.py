"""Probabilities as the weights give them -> confidence that is right as often as it says.

What the weights share out is too sure of itself, the more so where no rule knows the line. So the confidence is a
logistic function of the log-odds that the weights give and of the kind of evidence, fitted on answers that were made
with weights fitted without their log (``benchmarks.fit``). The odds count with a positive weight: a likelier answer
never has the lower confidence within its kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KINDS: Final = ("well", "quiet", "specific", "generic", "echo", "line", "plain", "vague", "detector")
"""the kinds of evidence for an answer: the log says that it ended well; it says nothing; a rule for the very message; a
rule for a class, or a traceback alone; an echo; a line that no rule knows; one whose words tell plainly, or
vaguely, what failed; a detector"""
_FURTHEST = 7.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """confidence = sigmoid(slope * log-odds + offset of the kind), between a floor and a ceiling."""

    slope: float = 1.0
    offsets: Mapping[str, float] = field(default_factory=dict)
    ceiling: float = 0.99

    def confidence(self, probability: float, kind: str) -> float:
        """How often an answer of this kind with this probability is right."""
        value = self.slope * log_odds(probability) + self.offsets.get(kind, 0.0)
        return round(min(self.ceiling, 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))), 2)

    @staticmethod
    def read(data: Mapping[str, Any]) -> Calibration:
        """From the file of weights."""
        slope = float(data["slope"])
        if slope < 0:
            raise ValueError("the slope of the calibration is negative")
        return Calibration(slope, {str(k): float(v) for k, v in data["offsets"].items()}, float(data["ceiling"]))


def log_odds(probability: float) -> float:
    """How far a probability is from even, bounded."""
    least = 1 / (1 + math.exp(_FURTHEST))
    p = min(1 - least, max(least, probability))
    return math.log(p / (1 - p))
