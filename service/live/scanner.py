"""Threads that read logs. Each attempt belongs to one of them, so it is read in order and by one matcher.

The native core scans without the GIL, so the threads run in parallel with each other and with the event loop. The busy attempts
of one thread take turns. A huge or slow one delays the others by one slice. What can wait while there is something to read is
done at leisure: when a thread has read nothing for a moment.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from diagnose.matching.matcher import Matcher
from service.clock import SYSTEM, Clock
from service.live.timers import Judging

log = logging.getLogger("diagnose.scanners")

_OLD_TIMERS = 64
"""timers that do not count may be as many as there are attempts, and so many more"""
_LEISURE_S = 0.03
"""a thread that has read nothing for so long has nothing else to do"""


@dataclass(slots=True)
class Turn:
    """The state of an attempt with its scanner. Guarded by the scanner's lock."""

    scheduled: bool = False
    """it waits for its turn"""
    working: bool = False
    closed: bool = False
    """it was released: nobody works on it any more"""
    due: float = 0.0
    """when to look at it even if nothing comes; 0: never"""
    leisure: float = 0.0
    """when to look at it if there is nothing to read then; 0: never"""
    at_leisure: bool = False
    """it is looked at because there is nothing to read"""


class Readable(Protocol):
    """What a scanner works on: an attempt."""

    @property
    def owner(self) -> tuple[str, int]: ...
    @property
    def turn(self) -> Turn: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def waits(self) -> bool:
        """Whether there is something to read."""

    @property
    def idle(self) -> bool: ...
    def work(self, matcher: Matcher, *, at_leisure: bool) -> bool: ...
    def next_due(self) -> float: ...
    def next_leisure(self) -> float: ...


class Matching(Protocol):
    """Gives a scanner its matchers."""

    def open(self, scanner: int) -> Matcher: ...
    def of(self, scanner: int, workload: str | None) -> Matcher: ...


class Scanner:
    """One thread with its matchers and its attempts."""

    def __init__(self, number: int, matchers: Matching, clock: Clock = SYSTEM) -> None:
        self.number = number
        self._matchers, self._clock = matchers, clock
        self._wake = threading.Condition()
        """for all that follows, and for the turns of its attempts"""
        self._ready: deque[Readable] = deque()
        self._timers: list[tuple[float, int, Readable]] = []
        self._leisure: list[tuple[float, int, Readable]] = []
        """what is done when there is nothing to read"""
        self._last_read = 0.0
        self._numbers = itertools.count()
        self._closing = False
        self._attempts = 0
        self._busy_since = 0.0
        """since when it works on one attempt; 0: it waits"""
        self.judging = Judging()
        self.prepared = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scanner-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def attempts(self) -> int:
        """How many attempts the scanner has."""
        return self._attempts

    def stands(self, longest_s: float) -> bool:
        """Whether it makes no progress: it has worked on one attempt for so long, or its thread has ended unasked."""
        since = self._busy_since
        busy = bool(since) and self._clock.steady() - since > longest_s
        return busy or (self.prepared.is_set() and not self._thread.is_alive() and not self._closing)

    def adopt(self, attempt: Readable) -> None:
        """From now on this thread reads ``attempt``. Its timers run, and its state is loaded before it is needed."""
        with self._wake:
            self._attempts += 1
        self.schedule(attempt)

    def schedule(self, attempt: Readable) -> None:
        """There is something to do for ``attempt``. Any thread may call this."""
        with self._wake:
            self._schedule(attempt)

    def release(self, attempt: Readable) -> bool:
        """Take ``attempt`` off this thread for good. False if it has something to do."""
        with self._wake:
            if not attempt.idle:
                return False
            attempt.turn.closed = True
            self._attempts -= 1
            self._drop_old_timers()
            return True

    def _drop_old_timers(self) -> None:
        """An attempt has one timer that counts. Others are old, and may be due in hours: each holds its attempt in memory."""
        if len(self._timers) > 2 * self._attempts + _OLD_TIMERS:
            self._timers = [row for row in self._timers if row[2].turn.due == row[0] and not row[2].turn.closed]
            heapq.heapify(self._timers)
        if len(self._leisure) > 2 * self._attempts + _OLD_TIMERS:
            self._leisure = [row for row in self._leisure if row[2].turn.leisure == row[0] and not row[2].turn.closed]
            heapq.heapify(self._leisure)

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(30)

    def _schedule(self, attempt: Readable) -> None:
        turn = attempt.turn
        if not turn.scheduled and not turn.closed:
            turn.scheduled = True
            self._ready.append(attempt)
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._matchers.open(self.number)
        finally:
            self.prepared.set()
        while (attempt := self._next()) is not None:
            self._done(attempt, self._worked(attempt))

    def _worked(self, attempt: Readable) -> bool:
        """Work on ``attempt``. True: there is more to read."""
        self._busy_since = self._clock.steady()
        reads = attempt.waits
        try:
            return attempt.work(self._matchers.of(self.number, attempt.kind), at_leisure=attempt.turn.at_leisure)
        except Exception:
            # One record that cannot be read must stop neither the rest of this job nor other jobs.
            log.exception("reading job %s attempt %d", *attempt.owner)
            return attempt.waits
        finally:
            self._busy_since = 0.0
            if reads:
                self._last_read = self._clock.steady()

    def _done(self, attempt: Readable, more: bool) -> None:
        leisure = attempt.next_leisure()
        with self._wake:
            turn = attempt.turn
            turn.working = turn.at_leisure = False
            if leisure != turn.leisure:
                turn.leisure = leisure
                if leisure:
                    heapq.heappush(self._leisure, (leisure, next(self._numbers), attempt))
                    self._drop_old_timers()
            if more:
                self._schedule(attempt)
            elif (due := attempt.next_due()) and (not turn.due or due < turn.due):
                turn.due = due
                heapq.heappush(self._timers, (due, next(self._numbers), attempt))
                self._drop_old_timers()

    def _next(self) -> Readable | None:
        with self._wake:
            while True:
                now = self._clock.steady()
                while self._timers and self._timers[0][0] <= now:
                    due, _, attempt = heapq.heappop(self._timers)
                    if attempt.turn.due == due:
                        attempt.turn.due = 0.0
                        self._schedule(attempt)
                if self._closing:
                    return None
                self._use_leisure(now)
                if self._ready:
                    attempt = self._ready.popleft()
                    attempt.turn.working, attempt.turn.scheduled = True, False
                    return attempt
                self._wake.wait(self._until_next(now))

    def _use_leisure(self, now: float) -> None:
        """If there is nothing to read, schedule what is done then."""
        while not self._ready and self._leisure and max(self._leisure[0][0], self._last_read + _LEISURE_S) <= now:
            at, _, attempt = heapq.heappop(self._leisure)
            if attempt.turn.leisure == at:
                attempt.turn.leisure = 0.0
                attempt.turn.at_leisure = True
                self._schedule(attempt)

    def _until_next(self, now: float) -> float | None:
        """How long it may sleep."""
        times = [self._timers[0][0]] if self._timers else []
        if self._leisure:
            times.append(max(self._leisure[0][0], self._last_read + _LEISURE_S))
        return max(0.0, min(times) - now) if times else None
