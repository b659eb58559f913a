"""When to save next: the interval, and whoever asks for a checkpoint now. Free of torch.

A scheduler sends a signal before it ends a job: SIGTERM, or one that is asked for (``sbatch --signal=USR1@120``). The service's
word comes with its answers: an action waits that will end the job, or its node is going bad.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from diagnose.checkpoints.when import ASSUMED_BETWEEN_FAILURES_S, ASSUMED_COST_S, Interval, Pace, interval
from diagnose.client import Word

_FIRST_S = 300.0
"""the first save comes early, because it measures what one costs"""
_SHARE = 0.001
"""of the time, for asking the other ranks"""


class Asking:
    def __init__(self, between_failures_s: float | None = None, every_s: float | None = None) -> None:
        """``between_failures_s``: as you know it; else the service says it from its history. ``every_s``: a fixed interval."""
        self._given = between_failures_s is not None
        self.between_failures_s = between_failures_s or ASSUMED_BETWEEN_FAILURES_S
        self._every_s = every_s
        self.pace = Pace()
        self.now: str | None = None
        """who wants a checkpoint now"""
        self._wish: str | None = None
        self.ending = False
        """the process will be ended soon"""
        self._postponed: set[int] = set()
        """signals whose former handler wanted to end the process"""
        self._heard: dict[signal.Signals, tuple[Any, Any]] = {}
        """(our handler, the one of before)"""
        self._last = time.monotonic()
        self._saves = 0
        self._step_at: float | None = None

    def listen(self, *numbers: signal.Signals) -> None:
        """Save now when one of these signals comes. The handlers of before are called, too. Only in the main thread.

        Such a handler may end the process at once (those of Ray and of submitit do): the first time the end waits for the
        checkpoint, and the training is ``ending``. Who sends the signal again ends the process, whatever was saved meanwhile.
        """
        for number in numbers:
            before = signal.getsignal(number)
            if number not in self._heard or before is not self._heard[number][0]:
                self._heard[number] = self._handler(before), before
                signal.signal(number, self._heard[number][0])

    def close(self) -> None:
        """Hear no more: the handlers of before are put back, where nobody has put others in the place of ours."""
        if threading.current_thread() is not threading.main_thread():
            return  # only there can it be done
        for number, (ours, before) in self._heard.items():
            if signal.getsignal(number) is ours and before is not None:  # None: it was not set from Python
                signal.signal(number, before)
        self._heard.clear()

    def _handler(self, before: Any) -> Callable[[int, Any], None]:
        def handle(number: int, frame: Any) -> None:
            self.now = f"the signal {signal.Signals(number).name}"
            self.ending = self.ending or number == signal.SIGTERM
            if callable(before) and before is not signal.default_int_handler:
                try:
                    before(number, frame)
                except SystemExit:
                    if number in self._postponed:
                        raise
                    self._postponed.add(number)
                    self.ending = True

        return handle

    def hear(self, word: Word | None) -> None:
        """What the service says. It says it again with each answer: a wish that was fulfilled is not heard twice."""
        if word is not None and word.save != self._wish:
            self._wish = word.save
            self.now = word.save or self.now
        if word is not None and word.between_failures_s and not self._given:
            self.between_failures_s = word.between_failures_s

    def stepped(self, writing: bool) -> None:
        """A step is done."""
        now = time.monotonic()
        if self._step_at is not None:
            self.pace.step(now - self._step_at, writing)
        self._step_at = now

    def saved(self, stood_s: float) -> None:
        self.pace.saved(stood_s)
        self.now = None
        self._last = self._step_at = time.monotonic()
        self._saves += 1

    def plan(self, write_s: float | None) -> Interval:
        """The present interval."""
        cost = self.pace.cost_s if self.pace.cost_s is not None else ASSUMED_COST_S
        best = interval(cost, self.between_failures_s, write_s or 0.0)
        if self._every_s is not None:
            return Interval(self._every_s, best.lost, "it was set")
        return best

    def due(self, write_s: float | None) -> bool:
        """Whether it is time, or somebody asked."""
        seconds = self.plan(write_s).seconds
        if not self._saves and self._every_s is None:
            seconds = min(seconds, _FIRST_S)
        return self.now is not None or time.monotonic() - self._last >= seconds

    def steps_between_looks(self, look_s: float) -> int:
        """Ranks ask each other this often, so that it takes no more than a thousandth of the time, and at least once in 1 s."""
        step = self.pace.step_s
        if not step:
            return 1
        return max(1, min(int(1.0 / step), int(look_s / (_SHARE * step))))
