"""When something is next to be done for an attempt, by the steady clock. 0 means never."""

from __future__ import annotations

from collections import OrderedDict

_DEBOUNCE_S, _AT_LATEST_S = 0.2, 0.6
_SHORTEST_GAP_S, _LONGEST_GAP_S = 0.3, 60.0
_COSTS = 20.0
"""if a job keeps failing, its diagnoses may take this part of a thread: one twentieth"""
_ALL_COST = 5.0
"""and those of all jobs that do so may take this part of it: a fifth"""
_AT_LEISURE, _ALL_AT_LEISURE = 4.0, 1.5
"""while the thread has nothing to read, those of one job may take a quarter of it, and those of all jobs two thirds"""
_HELD_S, _HELD_MOST_S = 1.0, 5.0
"""lines may wait for those after them for so long after the last bytes of their source, and for so long in all"""
_CALM_S = 20.0
_SETTLED_S = 0.6
"""when a job that kept failing has said no more for so long, it gets its last diagnosis"""


class Judging:
    """What it costs a scanner to diagnose once all those that it diagnosed lately. Owned by the scanner's thread."""

    def __init__(self) -> None:
        self._of: OrderedDict[object, tuple[float, float]] = OrderedDict()
        self.cost_s = 0.0

    def took(self, whose: object, now: float, cost_s: float) -> None:
        """A diagnosis of ``whose`` was made."""
        self._forget(whose)
        self._of[whose] = now, cost_s
        self.cost_s += cost_s
        while self._of and now - next(iter(self._of.values()))[0] > _CALM_S:
            self._forget(next(iter(self._of)))

    def _forget(self, whose: object) -> None:
        self.cost_s -= self._of.pop(whose, (0.0, 0.0))[1]


class Pauses:
    """Sources with lines that wait for those after them, and until when. Owned by the scanner."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[float, float]] = {}
        """source -> since when lines of it wait, and until when at most"""

    def read(self, source: int, now: float, holds: bool) -> None:
        """Bytes of a source were read, and now its last lines wait, or none does."""
        if not holds:
            self._of.pop(source, None)
            return
        since = self._of[source][0] if source in self._of else now
        self._of[source] = since, min(now + _HELD_S, since + _HELD_MOST_S)

    def next(self) -> float:
        return min((until for _, until in self._of.values()), default=0.0)

    def over(self, now: float) -> list[int]:
        """The sources that have waited long enough. They are told once."""
        found = sorted(source for source, (_, until) in self._of.items() if until <= now)
        for source in found:
            del self._of[source]
        return found


class Timers:
    """Owned by the scanner."""

    def __init__(self, hang: float = 0.0) -> None:
        self.flush = 0.0
        self.diagnose = 0.0
        self.leisure = 0.0
        """when to diagnose it, if its thread has nothing to read then: mostly before ``diagnose``"""
        self.pause = 0.0
        """when lines that wait for those after them have waited long enough"""
        self.end = 0.0
        self.hang = hang
        self.retry = 0.0
        self._first_hit = 0.0
        self._last_hit = 0.0
        self._judged_at = 0.0
        self._gap = self._rest = self._least = _SHORTEST_GAP_S

    def next(self) -> float:
        due = min((at for at in (self.flush, self.diagnose, self.pause, self.end, self.hang, self.retry) if at), default=0.0)
        return max(due, self.retry)  # before that nothing is done, so what is overdue waits

    def hit(self, now: float) -> None:
        """A line that is evidence of a failure was kept.

        A diagnosis is due soon after the last line of a burst, and at the latest soon after the first. While a job keeps
        failing it is diagnosed less and less often, but always once it has said no more for a moment: at once if its thread
        has nothing to read, else when its diagnoses, and those of others, have cost little enough.
        """
        self._first_hit = self._first_hit or now
        if now - self._last_hit > _CALM_S:
            self._gap = self._rest = self._least = _SHORTEST_GAP_S
        self._last_hit = now
        soon = min(now + _DEBOUNCE_S, self._first_hit + _AT_LATEST_S)
        if self._judged_at:
            while_it_fails = max(soon, self._judged_at + self._gap)
            once_it_stops = max(now + _SETTLED_S, self._judged_at + self._rest)
            self.diagnose = min(while_it_fails, once_it_stops)
            self.leisure = max(now + _SETTLED_S, self._judged_at + self._least)
        else:
            self.diagnose = soon

    def judging(self) -> None:
        """The diagnosis that was due is made now."""
        self.diagnose = self.leisure = self._first_hit = 0.0

    def judged(self, at: float) -> None:
        self._judged_at = at

    def slower(self, cost_s: float, all_cost_s: float = 0.0) -> None:
        """Wait longer before the next diagnosis.

        ``cost_s`` is what the last one took, ``all_cost_s`` what one of each job takes that the thread diagnosed lately.
        """
        self._least = min(max(_SHORTEST_GAP_S, _AT_LEISURE * cost_s, _ALL_AT_LEISURE * all_cost_s), _LONGEST_GAP_S)
        self._rest = min(max(_SHORTEST_GAP_S, _COSTS * cost_s, _ALL_COST * all_cost_s), _LONGEST_GAP_S)
        self._gap = min(max(2 * self._gap, self._rest), _LONGEST_GAP_S)
