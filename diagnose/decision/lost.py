"""GPU time lost to a failure, by one definition everywhere (docs/lost.md).

Lost is what has to be paid again: the work since the last usable checkpoint, the time that the GPUs stood still until the
attempt ended, and the way back, for which the attempt's own start-up stands. If no checkpoint is known, all work is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.report import Report

MEANING = (
    "Work since the last usable checkpoint, standing still until the end, and the way back (as long as the start-up took). "
    "Where no checkpoint is known, the whole run."
)


@dataclass(frozen=True, slots=True)
class Lost:
    """Seconds of one attempt, on each of its GPUs."""

    work_s: float
    """since the last usable checkpoint"""
    still_s: float
    """from the last sign of progress to the end"""
    back_s: float
    """until the next attempt is where the checkpoint was made"""
    whole: bool
    """no checkpoint is known, so all work counts"""

    @property
    def seconds(self) -> float:
        return self.work_s + self.still_s + self.back_s


@dataclass(frozen=True, slots=True)
class Price:
    """What a failure cost, in seconds of GPUs."""

    gpu_seconds: float = 0.0
    """all that was lost"""
    still: float = 0.0
    back: float = 0.0
    whole: bool = True


def price(lost: Lost, gpus: int) -> Price:
    """For all GPUs of the attempt."""
    return Price(lost.seconds * gpus, lost.still_s * gpus, lost.back_s * gpus, lost.whole)


@dataclass(frozen=True, slots=True)
class Ran:
    """How an attempt ran, as far as it is known."""

    ran_s: float
    gpus: int
    start_up_s: float | None = None
    still_s: float = 0.0

    def price(self, report: Report, told: float | None = None) -> Price:
        """What its failure cost. ``told``: the step of the newest checkpoint that the training script reported."""
        first, last = steps_of(report)
        saved = max((step for step in (saved_step(report), told) if step is not None), default=None)
        found = lost(self.ran_s, start_up_s=self.start_up_s, still_s=self.still_s, first=first, last=last, saved=saved)
        return price(found, self.gpus)


def lost(
    ran_s: float,
    *,
    start_up_s: float | None = None,
    still_s: float = 0.0,
    first: float | None = None,
    last: float | None = None,
    saved: float | None = None,
) -> Lost:
    """What a failed attempt of ``ran_s`` seconds lost.

    ``first`` and ``last``: its steps. ``saved``: the step of the last usable checkpoint. Steps count as equally long. An
    attempt that did not begin with its first steps came from a checkpoint.
    """
    ran_s = max(0.0, ran_s)
    still_s = min(max(0.0, still_s), ran_s)
    start_up_s = min(max(0.0, start_up_s or 0.0), ran_s - still_s)
    work_s = ran_s - still_s - start_up_s
    if first is None or last is None or last < first or (saved is None and first <= _FIRST):
        return Lost(work_s, still_s, start_up_s, True)
    began = max(saved or 0.0, first - 1)
    return Lost(work_s * max(0.0, last - began) / (last - first + 1), still_s, start_up_s, False)


_FIRST = 100
"""logs that begin at a step up to this one may only print every so many steps"""


def steps_of(report: Report) -> tuple[float | None, float | None]:
    """The first and the last step that a report knows of."""
    begins = [metric.points[0][0] for metric in report.metrics.values() if metric.points]
    ends = [metric.at_step for metric in report.metrics.values()]
    firsts, lasts = ([step for step in steps if step is not None] for steps in (begins, ends))
    last = report.diagnosis.step if report.diagnosis.step is not None else max(lasts, default=None)
    return min(firsts, default=None), last


def saved_step(report: Report) -> float | None:
    """The step of the newest checkpoint in a report that is complete and from before what went wrong."""
    affected = report.diagnosis.affected
    usable = [one.step for one in report.checkpoints if one.complete and (affected is None or one.step <= affected.first)]
    return max(usable, default=None)


def still_of(report: Report) -> float:
    """From the root cause to the last line that follows from it, by the times in the log."""
    return max((line.later_s for line in report.diagnosis.evidence if line.later_s is not None), default=0.0)
