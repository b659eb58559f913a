"""Numbered events for all listeners: SSE, the dashboard, webhooks.

Numbers begin at the time of day, so they also grow over restarts. The last events stay in memory. A listener that was away goes
on after its last number. If that is no longer in memory, it is told to load everything again (``reset``).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

KINDS = tuple(
    "job.started job.progress job.diagnosed job.alarm job.ended job.deleted failure.changed failure.regressed"
    " diagnosis.corrected diagnosis.learned action.proposed action.changed nodes.checked rule.active rule.promoted rule.retired"
    " reset".split()
)
"""all kinds of event; a browser only receives the kinds that it names"""
_KEPT = 10_000
_MOST_WAITING = 1_000
BEAT_S = 5.0
"""after so long without an event a listener gets None"""


@dataclass(frozen=True, slots=True)
class Event:
    """``kind`` is what happened: one of ``KINDS``."""

    id: int
    kind: str
    at: float
    data: dict[str, Any]


class Events:
    """Publish and listen on the event loop. Other threads use ``publish_from_thread``."""

    def __init__(self, beat_s: float = BEAT_S) -> None:
        """``beat_s``: after so long without an event a listener gets None."""
        self._beat_s = beat_s
        self._next = time.time_ns() // 1_000
        self._recent: deque[Event] = deque(maxlen=_KEPT)
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def publish(self, kind: str, **data: Any) -> Event:
        assert kind in KINDS, kind
        event = Event(self._next, kind, time.time(), data)
        self._next += 1
        self._recent.append(event)
        for queue in list(self._listeners):
            if queue.qsize() >= _MOST_WAITING:
                # It does not read. It will come again with the number of its last event.
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)
        return event

    def publish_from_thread(self, kind: str, **data: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self.publish(kind, **data))

    async def listen(self, after: int | None = None) -> AsyncIterator[Event | None]:
        """Events after number ``after`` (None: from now on). Sometimes None, so that a dead connection is noticed."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        backlog: list[Event] = []
        if after is not None:
            oldest = self._recent[0].id if self._recent else self._next
            if after + 1 < oldest or after >= self._next:
                backlog.append(Event(self._next - 1, "reset", time.time(), {"why": "events were missed: load all again"}))
            else:
                backlog = [event for event in self._recent if event.id > after]
        self._listeners.add(queue)
        try:
            for event in backlog:
                yield event
            while not self._closed:
                try:
                    async with asyncio.timeout(self._beat_s):
                        news = await queue.get()
                except TimeoutError:
                    yield None
                    continue
                if news is None:
                    return
                yield news
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """Let all listeners go."""
        self._closed = True
        for queue in list(self._listeners):
            queue.put_nowait(None)
