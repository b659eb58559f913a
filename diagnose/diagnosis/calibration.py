"""Probability of an answer -> confidence: among answers with confidence 0.8, eight of ten should be right.

The weights alone are too sure, above all of lines that no rule knows. So the confidence is a logistic function of the log-odds
and of the kind of evidence. It is fitted on answers for logs that the weights were not fitted on (``benchmarks.fit``). Within a
kind, a likelier answer always has the higher confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KINDS: Final = (
    "well",
    "quiet",
    "silent",
    "specific",
    "noted",
    "generic",
    "nameless",
    "echo",
    "killed",
    "line",
    "plain",
    "contested",
    "vague",
    "detector",
)
"""kinds of evidence for an answer: the log says that it ended well; it shows work and no failure; it shows neither; a rule for
this message, which ends a process; one for a message that may be survived; a rule for a class, or only a traceback; the same of
a class that names no cause, such as RuntimeError; an echo; an echo of a SIGKILL; a line that no rule knows; such a line whose
words say plainly what failed; the same, and other lines point elsewhere; words that only hint; a detector
"""
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
        """The calibration in a file of weights."""
        slope = float(data["slope"])
        if slope < 0:
            raise ValueError("the slope of the calibration is negative")
        return Calibration(slope, {str(k): float(v) for k, v in data["offsets"].items()}, float(data["ceiling"]))


def log_odds(probability: float) -> float:
    """The log-odds of a probability, bounded."""
    least = 1 / (1 + math.exp(_FURTHEST))
    p = min(1 - least, max(least, probability))
    return math.log(p / (1 - p))
