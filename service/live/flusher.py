"""Writes what was read into the database: one thread, many jobs per transaction, repeated until it succeeds.

While the database is away, only the flushes wait. What is accepted meanwhile waits in the journal. A flush that the database
refuses is set aside and tried alone, so that it does not hold up the others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from diagnose.backoff import Backoff
from diagnose.errors import said_first
from service.clock import SYSTEM, Clock
from service.store import Store, away
from service.store.attempts import taking_in
from service.store.flush import Flush
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.flusher")

_MOST = 64
_MOST_ROWS = 20_000
_BACKOFF = Backoff(0.1, 5.0)
_ASIDE_S = 30.0

Done = Callable[[Flush], None]


class Flusher:
    """Any thread may call ``put``. ``done`` is called on the flusher's thread."""

    def __init__(self, store: Store, telemetry: Telemetry, clock: Clock = SYSTEM) -> None:
        self._store, self._telemetry, self._clock = store, telemetry, clock
        self._urgent: deque[tuple[Flush, Done]] = deque()
        self._waiting: deque[tuple[Flush, Done]] = deque()
        self._aside: deque[tuple[float, Flush, Done]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.up = True
        self.last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, flush: Flush, done: Done) -> None:
        with self._wake:
            (self._urgent if flush.judged is not None else self._waiting).append((flush, done))
            self._wake.notify()

    def close(self, timeout_s: float = 20.0) -> None:
        """Write what waits, if the database is there."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        while True:
            batch = self._take()
            if batch is None:
                return
            began = self._clock.steady()
            try:
                self._store.write(taking_in([flush for flush, _ in batch]))
            except Exception as error:
                self._telemetry.flushes.labels("failed").inc()
                self.last_error = said_first(error)
                if isinstance(error, SQLAlchemyError) and away(error):
                    if self.up:
                        log.error("the database is away: %s", self.last_error)
                    self.up = False
                    self._telemetry.database_up.set(0)
                    with self._wake:
                        self._urgent.extendleft(reversed(batch))
                        if self._closing:
                            return
                        failures += 1
                        self._wake.wait(_BACKOFF.after(failures))
                else:
                    self._one_by_one(batch)
                continue
            self._came_back()
            failures = 0
            self._telemetry.flushes.labels("stored").inc()
            self._telemetry.flush_s.observe(self._clock.steady() - began)
            for flush, done in batch:
                _say(flush, done)

    def _came_back(self) -> None:
        if not self.up:
            log.info("the database is back")
        self.up = True
        self._telemetry.database_up.set(1)

    def _take(self) -> list[tuple[Flush, Done]] | None:
        with self._wake:
            while True:
                now = self._clock.steady()
                while self._aside and self._aside[0][0] <= now:
                    _, flush, done = self._aside.popleft()
                    self._waiting.append((flush, done))
                if self._urgent or self._waiting:
                    break
                if self._closing:
                    return None
                self._wake.wait(self._aside[0][0] - now if self._aside else None)
            batch: list[tuple[Flush, Done]] = []
            rows = 0
            while len(batch) < _MOST and rows < _MOST_ROWS and (self._urgent or self._waiting):
                flush, done = (self._urgent or self._waiting).popleft()
                rows += len(flush.rows)
                batch.append((flush, done))
            return batch

    def _one_by_one(self, batch: list[tuple[Flush, Done]]) -> None:
        """One of them is refused: find it, and let the others go on."""
        for flush, done in batch:
            try:
                self._store.write(taking_in([flush]))
            except Exception as error:
                log.error("job %d attempt %d cannot be stored: %s", flush.job_id, flush.number, said_first(error))
                self.last_error = said_first(error)
                with self._wake:
                    self._aside.append((self._clock.steady() + _ASIDE_S, flush, done))
            else:
                self._came_back()
                _say(flush, done)


def _say(flush: Flush, done: Done) -> None:
    """It is stored, whatever becomes of saying so: the flushes of all other jobs go on."""
    try:
        done(flush)
    except Exception:
        log.exception("job %d attempt %d was stored, and that could not be said", flush.job_id, flush.number)
