"""What other threads tell the thread that reads an attempt: messages, each of which is taken once.

Nobody sets a flag that the reader resets: between its look at the flag and the reset, what was set anew would be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from service.live.stream import Item
from service.segments import Definition


class Entered(NamedTuple):
    """There is a new source. Told before the first of its bytes."""

    definition: Definition


class Labelled(NamedTuple):
    """The job's labels changed: these are all of them now."""

    labels: dict[str, str]


class Awaited(NamedTuple):
    """Somebody waits for what was read to be stored."""

    report: bool
    """and for a diagnosis of it"""


class Stored(NamedTuple):
    """The flush is in the database."""


Note = Entered | Labelled | Awaited | Stored


class Inbox:
    """Any thread puts (a deque's ends are safe to use from several), only the reader takes."""

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        """in the order of the journal; they are read in turns, and what follows does not wait for them"""
        self._notes: deque[Note] = deque()

    def put(self, note: Note) -> None:
        self._notes.append(note)

    def notes(self) -> Iterator[Note]:
        """Take those that are there."""
        while self._notes:
            yield self._notes.popleft()

    def __bool__(self) -> bool:
        return bool(self.items or self._notes)
