"""Faults that no single line states: they are in how the numbers and the times run.

A detector is a function of what the job did so far; it yields anomalies and never reads the log itself. To add one, write a
module with ``find(course)`` and enter it in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diagnose.diagnosis.detectors import hang, loss, slowdown
from diagnose.diagnosis.detectors.course import Anomaly, Course

DETECTORS: dict[str, Callable[[Course], Iterator[Anomaly]]] = {
    "loss": loss.find,
    "hang": hang.find,
    "slowdown": slowdown.find,
}


def findings(course: Course) -> list[Anomaly]:
    """What all detectors find."""
    return [anomaly for find in DETECTORS.values() for anomaly in find(course)]
