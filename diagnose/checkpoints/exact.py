"""Whether a training that was resumed is the same training: its first losses beside those recorded for the same steps.

What is usually forgotten shows in where they part. The first step after a checkpoint needs the weights, the batch and the
random state. Only the second shows the optimizer, which the first has used.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

NAME: Final = "diagnose-losses.txt"
_COMPARED = 10
_KEPT = 2000
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Exactness:
    state: Literal["equal", "close", "not exact", "unknown"]
    why: str


def compare(before: Mapping[int, float], after: Mapping[int, float]) -> Exactness:
    """Losses by step: as recorded before, and as they are now."""
    steps = sorted(before.keys() & after.keys())
    if not steps:
        return Exactness("unknown", "no loss of these steps was recorded before")
    first, last = steps[0], steps[-1]
    parts = next((step for step in steps if not _same(before[step], after[step])), None)
    if parts is None:
        return Exactness("equal", f"the losses of steps {first:,} to {last:,} are those of before, bit by bit")
    worst = max(steps, key=lambda step: _apart(before[step], after[step]))
    apart = _apart(before[worst], after[worst])
    told = f"step {worst:,} has the loss {after[worst]:.6g}, and had {before[worst]:.6g}"
    if apart <= _CLOSE:
        return Exactness("close", f"the losses differ by {apart:.1e} at most: {told}")
    if parts == first:
        missing = "the order of the data or the random state is not that of before, or the weights are not"
    else:
        missing = "the weights are those of before; the optimizer, its learning rate or the scaler is not"
    return Exactness("not exact", f"resume is not exact: {told}. They part at step {parts:,}: {missing}")


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _apart(a: float, b: float) -> float:
    if _same(a, b):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))


class Losses:
    """The losses of a training, in a file that outlives it. They are written with all their bits."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._before: dict[int, float] = {}
        self._after: dict[int, float] = {}
        self.exactness: Exactness | None = None
        """known some steps after a resume"""

    def resumed(self, step: int) -> None:
        """The training begins after this step. What was recorded for later ones will be compared."""
        recorded = _read(self._path)
        self._before = {number: loss for number, loss in recorded.items() if number > step}
        self._after, self.exactness = {}, None
        kept = sorted(recorded.items())[-_KEPT:]
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_suffix(".part")
            beside.write_text("".join(f"{number} {loss.hex()}\n" for number, loss in kept if number <= step))
            beside.rename(self._path)

    def note(self, step: int, loss: float) -> Exactness | None:
        """A loss. Gives the verdict once, when enough are known."""
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(f"{step} {loss.hex()}\n")
        if self.exactness is not None or step not in self._before:
            return None
        self._after[step] = loss
        if len(self._after) < min(_COMPARED, len(self._before)):
            return None
        self.exactness = compare(self._before, self._after)
        return self.exactness


def _read(path: Path) -> dict[int, float]:
    """The last loss of each step. A line that cannot be read is left out: the last one may be cut."""
    found: dict[int, float] = {}
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 2 * _KEPT))
            text = file.read().decode("ascii", "replace")
    except OSError:
        return found
    for line in text.splitlines():
        number, _, loss = line.partition(" ")
        with contextlib.suppress(ValueError, OverflowError):
            found[int(number)] = float.fromhex(loss)
    return found
