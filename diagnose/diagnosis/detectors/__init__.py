"""Course of a job -> anomalies: faults that no single line states, but numbers or times show.

A detector is a function of the course and never reads the log. To add one, write a module with ``find(course)`` and put it into
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diagnose.diagnosis.detectors import contradiction, hang, loss, slowdown
from diagnose.diagnosis.detectors.course import Anomaly, Course

DETECTORS: dict[str, Callable[[Course], Iterator[Anomaly]]] = {
    "loss": loss.find,
    "hang": hang.find,
    "slowdown": slowdown.find,
    "contradiction": contradiction.find,
}


def findings(course: Course) -> list[Anomaly]:
    """What all detectors find."""
    return [anomaly for find in DETECTORS.values() for anomaly in find(course)]
