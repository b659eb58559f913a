"""Messages of other threads to the thread that reads an attempt. Each is taken once.

Messages are used because flags would lose news: a flag that is set between the reader's look and its reset would be reset
unseen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from service.live.stream import Item
from service.segments import Definition


class Entered(NamedTuple):
    """There is a new source. This comes before its first bytes."""

    definition: Definition


class Labelled(NamedTuple):
    """The job's labels have changed. These are all of them."""

    labels: dict[str, str]


class Awaited(NamedTuple):
    """Somebody waits until what was read is stored."""

    report: bool
    """and for a diagnosis of it"""


class Stored(NamedTuple):
    """The flush is in the database."""


class Moved(NamedTuple):
    """The training itself reports that it has made a step."""

    at: float


Note = Entered | Labelled | Awaited | Stored | Moved


class Inbox:
    """Any thread puts messages in, and only the reader takes them out. A deque allows this without a lock."""

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        """in the order of the journal; they are read in turns, and the messages do not wait for them"""
        self._notes: deque[Note] = deque()

    def put(self, note: Note) -> None:
        self._notes.append(note)

    def notes(self) -> Iterator[Note]:
        """Take all messages."""
        while self._notes:
            yield self._notes.popleft()

    def __bool__(self) -> bool:
        return bool(self.items or self._notes)
