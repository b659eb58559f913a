"""When something is next to be done for an attempt, by the steady clock. 0 means never."""

from __future__ import annotations

_DEBOUNCE_S, _AT_LATEST_S = 0.2, 0.6
_SHORTEST_GAP_S, _LONGEST_GAP_S = 0.3, 60.0
_COSTS = 20.0
"""if a job keeps failing, its diagnoses may take this part of a thread: one twentieth"""
_CALM_S = 20.0


class Timers:
    """Owned by the scanner."""

    def __init__(self, hang: float = 0.0) -> None:
        self.flush = 0.0
        self.diagnose = 0.0
        self.end = 0.0
        self.hang = hang
        self.retry = 0.0
        self._first_hit = 0.0
        self._last_hit = 0.0
        self._judged_at = 0.0
        self._gap = _SHORTEST_GAP_S

    def next(self) -> float:
        return min((at for at in (self.flush, self.diagnose, self.end, self.hang, self.retry) if at), default=0.0)

    def hit(self, now: float) -> None:
        """A line that is evidence of a failure was kept.

        A diagnosis is due soon after the last line of a burst, and at the latest soon after the first. A job that keeps failing
        is diagnosed less and less often.
        """
        self._first_hit = self._first_hit or now
        if now - self._last_hit > _CALM_S:
            self._gap = _SHORTEST_GAP_S
        self._last_hit = now
        soon = min(now + _DEBOUNCE_S, self._first_hit + _AT_LATEST_S)
        self.diagnose = max(soon, self._judged_at + self._gap if self._judged_at else 0.0)

    def judging(self) -> None:
        """The diagnosis that was due is made now."""
        self.diagnose = self._first_hit = 0.0

    def judged(self, at: float) -> None:
        self._judged_at = at

    def slower(self, cost_s: float) -> None:
        """Wait longer before the next diagnosis. ``cost_s`` is what the last one took."""
        self._gap = min(max(2 * self._gap, _COSTS * cost_s), _LONGEST_GAP_S)
