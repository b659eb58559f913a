"""Whether a training should start from a checkpoint: a verdict with its reasons.

Whole is not good. A checkpoint that was saved after the loss went wrong has every bit in its place, and brings the wrong loss
back. So a checkpoint is

- *bad* if it is damaged, if its weights or its optimizer hold what is no number, if an alarm about the numbers began before it
  was saved, or if its own evaluation is far worse than the best before;
- *good* if the training went on from it to the next checkpoint and no alarm began meanwhile;
- *open* else: nobody can say yet, or something speaks against it that is no proof: an alarm about a machine before the next
  checkpoint, a score that fell. A training starts from it if there is nothing better that is as new.

The loss shows some steps later what the weights took in, so an alarm also spoils what was saved shortly before it began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

NUMBERS: Final = ("loss", "gradient")
"""kinds of alarms that say the weights are spoilt; a hang or a broken node spoils none"""
_SHORTLY_BEFORE = 0.02
_FAR_WORSE = 1.5


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something went wrong in the training, from a step on."""

    step: int
    said: str
    kind: str = "loss"
    """loss, gradient, hang or hardware"""
    over: int | None = None
    """the step at which it was over; None: it is still open"""

    @property
    def reach(self) -> int:
        """The last step whose checkpoint it does not spoil."""
        return self.step - max(1, int(self.step * _SHORTLY_BEFORE)) if self.kind in NUMBERS else self.step

    def between(self, step: int, later: int) -> bool:
        """Whether it came after this checkpoint and before that one. A loss tells of what came before it."""
        return step <= self.step <= later if self.kind in NUMBERS else step <= self.step < later


@dataclass(frozen=True, slots=True)
class Saved:
    """What is known of a checkpoint."""

    step: int
    damaged: str | None = None
    no_numbers: tuple[str, ...] = ()
    """names of tensors that hold NaN, or have become infinite"""
    evaluation: float | None = None
    """a loss: less is better"""
    doubt: str | None = None
    """what speaks against it, and is no proof"""


@dataclass(frozen=True, slots=True)
class Judged:
    state: Literal["good", "bad", "open"]
    why: str
    doubted: bool = False
    """open, and it stays so"""


def judge(one: Saved, others: Sequence[Saved], alarms: Iterable[Alarm]) -> Judged:
    """The verdict about one checkpoint. ``others`` are those of the same training, in any order."""
    against = _against(one, others, tuple(alarms))
    if against is not None:
        return Judged("bad", against)
    if one.doubt is not None:
        return Judged("open", one.doubt, doubted=True)
    later = min((other.step for other in others if other.step > one.step), default=None)
    if later is None:
        return Judged("open", "nothing was saved after it yet")
    between = next((alarm for alarm in alarms if alarm.between(one.step, later)), None)
    if between is not None:
        told = f"before the next checkpoint, at step {between.step:,}: {between.said}"
        return Judged("open", told, doubted=between.kind not in NUMBERS)  # after those the training starts here, and proves it
    return Judged("good", f"the training went on to step {later:,} without an alarm")


def _against(one: Saved, others: Sequence[Saved], alarms: Sequence[Alarm]) -> str | None:
    if one.damaged is not None:
        return one.damaged
    if one.no_numbers:
        more = f" and {len(one.no_numbers) - 1} more tensors" if len(one.no_numbers) > 1 else ""
        return f"{one.no_numbers[0]}{more} hold what is no finite number"
    for alarm in alarms:
        spoils = alarm.kind in NUMBERS and alarm.reach < one.step
        if spoils and (alarm.over is None or one.step < alarm.over):
            return f"at step {alarm.step:,} {alarm.said}"
    best = min((other.evaluation for other in others if other.evaluation is not None and other.step < one.step), default=None)
    if one.evaluation is not None and not math.isfinite(one.evaluation):
        return "its evaluation is not a number"
    if one.evaluation is not None and best is not None and best > 0 and one.evaluation > _FAR_WORSE * best:
        return f"its evaluation is {one.evaluation:.4g}, and was {best:.4g} before"
    return None
