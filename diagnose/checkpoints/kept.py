"""Which checkpoints stay. The rest may be deleted.

These stay:

- the newest ``keep`` that are not bad,
- the newest good one,
- before each open alarm the newest one that is not bad, the newest good one, and for as long as the alarm is open all between
  them: this is what a roll-back needs, and what every loop that keeps the last three deletes,
- of the older ones one per day for a week and one per week for a month (``THIN``): the oldest of each,
- what is being written, read or uploaded,
- bad ones, until ``keep`` newer ones are not bad: somebody may want to look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diagnose.checkpoints.good import Alarm, Judged

_DAY = 86400.0
THIN: Final = ((_DAY, 7), (7 * _DAY, 4))
"""(seconds, how many such periods): one checkpoint of each stays"""


@dataclass(frozen=True, slots=True)
class Candidate:
    path: Path
    step: int
    at: float
    judged: Judged
    busy: bool = False
    """it is being written, read or uploaded"""


def to_delete(
    known: Iterable[Candidate],
    keep: int,
    alarms: Sequence[Alarm],
    now: float,
    thin: Sequence[tuple[float, int]] = THIN,
) -> list[Candidate]:
    """What may go, the oldest first."""
    newest = sorted(known, key=lambda one: (one.step, one.at), reverse=True)
    usable = [one for one in newest if one.judged.state != "bad"]
    stay = {one.path for one in usable[: max(1, keep)]}
    stay |= {one.path for one in newest if one.busy}
    stay |= _first(one for one in usable if one.judged.state == "good")
    for alarm in alarms:
        if alarm.over is None:
            stay |= _before(usable, alarm)
    stay |= _thinned(usable, now, thin)
    last = usable[keep - 1].step if 0 < keep <= len(usable) else None
    stay |= {one.path for one in newest if one.judged.state == "bad" and (last is None or one.step >= last)}
    return [one for one in reversed(newest) if one.path not in stay]


def _first(some: Iterable[Candidate]) -> set[Path]:
    return {one.path for one in list(some)[:1]}


def _before(usable: Sequence[Candidate], alarm: Alarm) -> set[Path]:
    """The newest one before an alarm, the newest good one, and all between them."""
    before = [one for one in usable if one.step <= alarm.reach]
    good = next((number for number, one in enumerate(before) if one.judged.state == "good"), 0)
    return {one.path for one in before[: good + 1]}


def _thinned(usable: Sequence[Candidate], now: float, thin: Sequence[tuple[float, int]]) -> set[Path]:
    """The oldest one of each period."""
    stay = set()
    for period, count in thin:
        oldest = {int(one.at // period): one.path for one in usable if now - one.at < period * count}  # the last wins
        stay |= set(oldest.values())
    return stay
