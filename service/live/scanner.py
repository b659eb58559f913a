"""Threads that read logs. Every attempt belongs to one of them, so it is read in order and by one matcher.

The native core scans without the GIL, so threads do run beside each other and beside the event loop; the busy attempts of one
thread take turns, a slice each, and one that is huge or slow delays the others by a slice.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.compression.snapshot import StoredLine
    from diagnose.compression.workload import Fingerprint
    from diagnose.matching.scan import Scan
    from diagnose.report import Report
    from service.live.attempt import Attempt, End
    from service.live.matchers import Matchers
    from service.store.attempts import Flush

log = logging.getLogger("diagnose.scanners")


class Desk(Protocol):
    """What an attempt asks of the service, from its scanner's thread."""

    @property
    def unstored(self) -> int: ...
    def weigh(self, weight: int) -> None: ...
    def read(self, attempt: Attempt, size: int) -> None: ...
    def state_of(self, attempt_id: int) -> tuple[bytes | None, list[StoredLine]]: ...
    def database_failed(self, error: Exception) -> None: ...
    def flush_interval(self) -> float: ...
    def flush(self, attempt: Attempt, flush: Flush) -> None: ...
    def ended(self, attempt: Attempt, end: End) -> None: ...
    def reported(self, attempt: Attempt, report: Report, cost_s: float) -> None: ...
    def settled(self, attempt: Attempt) -> None: ...
    def publish(self, kind: str, **data: Any) -> None: ...
    def workload(self, job: Fingerprint) -> str | None: ...
    @property
    def learns(self) -> bool: ...
    def learn(self, attempt: Attempt, scans: Sequence[Scan]) -> None: ...


class Scanner:
    """One thread with its matchers and its attempts."""

    def __init__(self, number: int, matchers: Matchers) -> None:
        self.number = number
        self._matchers = matchers
        self._ready: deque[Attempt] = deque()
        self._timers: list[tuple[float, int, Attempt]] = []
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self.attempts = 0
        """how many are its"""
        self.prepared = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scanner-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def schedule(self, attempt: Attempt) -> None:
        """There is something to do for ``attempt``. From any thread."""
        with self._wake:
            if not attempt.scheduled and not attempt.closed:
                attempt.scheduled = True
                self._ready.append(attempt)
                self._wake.notify()

    def release(self, attempt: Attempt) -> bool:
        """Take ``attempt`` off this thread for good; False if it has something to do."""
        with self._wake:
            if attempt.scheduled or attempt.working or not attempt.idle:
                return False
            attempt.closed = True
            self.attempts -= 1
            return True

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            self._matchers.open(self.number)
        finally:
            self.prepared.set()
        while (attempt := self._next()) is not None:
            more = False
            try:
                if not attempt.closed:
                    more = attempt.work(self._matchers.of(self.number, attempt.workload))
            except Exception:
                # One record that cannot be read must not stop this job's others, nor other jobs.
                log.exception("reading job %s attempt %d", attempt.job, attempt.number)
                more = bool(attempt.pending)
            finally:
                attempt.working = False
            if more:
                self.schedule(attempt)
            elif not attempt.closed and (due := attempt.next_due()):
                with self._wake:
                    if not attempt.due or due < attempt.due:
                        attempt.due = due
                        heapq.heappush(self._timers, (due, next(self._numbers), attempt))

    def _next(self) -> Attempt | None:
        with self._wake:
            while True:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    due, _, attempt = heapq.heappop(self._timers)
                    if attempt.due == due and not attempt.closed:
                        attempt.due = 0.0
                        if not attempt.scheduled:
                            attempt.scheduled = True
                            self._ready.append(attempt)
                if self._closing:
                    return None
                if self._ready:
                    attempt = self._ready.popleft()
                    attempt.working, attempt.scheduled = True, False
                    return attempt
                self._wake.wait(self._timers[0][0] - now if self._timers else None)
