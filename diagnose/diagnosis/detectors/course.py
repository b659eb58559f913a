"""What detectors see of a job, and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from diagnose.matching.series import Series


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that is wrong with the course of a job."""

    detector: str
    reason: str | None
    """None: worth reporting, but not a failure"""
    source: int
    line: int
    sentence: str
    step: float | None = None
    last_step: float | None = None
    """of the stretch that is affected"""
    sustained: bool = True
    to_the_end: bool = False
    """no value after it is a number: steps after it are no progress"""
    rose: bool = False
    """a number rose and is one still"""


@dataclass(frozen=True, slots=True)
class Silence:
    """No progress for a while, and then the end."""

    source: int
    line: int
    """the last line of progress"""
    seconds: float
    rhythm_s: float | None
    """seconds per step before the silence"""
    busy: bool
    """the log had announced something slow (a checkpoint, an evaluation)"""


@dataclass(slots=True)
class Course:
    """The job's numbers and times."""

    series: dict[str, tuple[int, Series]] = field(default_factory=dict)
    """name -> (source, its fullest series)"""
    silence: Silence | None = None
    running: bool = False
    """the job is still running: what just rose may come down again"""


def steps_of(anomaly: Anomaly | None) -> tuple[float, float | None] | None:
    """(first, last) step of an anomaly."""
    if anomaly is None or anomaly.step is None or not math.isfinite(anomaly.step):
        return None
    last = anomaly.last_step
    return anomaly.step, last if last is not None and math.isfinite(last) else None


def means(series: Series) -> tuple[list[int], list[float]]:
    """(number, mean) of each bucket that has a number, as two columns."""
    finite, total = series.column("finite"), series.column("total")
    places = [place for place, count in enumerate(finite) if count]
    return places, [total[place] / finite[place] for place in places]


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def duration(seconds: float) -> str:
    """``3.2 s``, ``10 min``, ``3 h 10 min``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
