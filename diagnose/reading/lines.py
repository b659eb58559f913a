"""Chunks of bytes -> blocks of whole segments, however the bytes were cut.

A line ends at LF. Within a line, CR and NUL end a *segment*: progress bars redraw themselves with CR, and a log that was
truncated while it was written is filled with NULs. Segments are judged one by one and count as one line. A segment of more than
``LONGEST`` bytes is cut there, so memory is bounded. The bytes that were cut off are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 65536
"""bytes of a segment that are judged and kept; the native core has the same number"""

ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, hyperlinks
    rb"|[ -~])?"
)


def clean(segment: bytes) -> bytes:
    """``segment`` without terminal escape sequences."""
    return ESCAPES.sub(b"", segment) if b"\x1b" in segment else segment


class Block(NamedTuple):
    """Whole segments, each ended by LF, CR or NUL."""

    data: bytes | memoryview
    cut: int = 0
    """bytes that the first segment had beyond those here (which are more than LONGEST)"""


class Blocks:
    """Puts chunks together into blocks: the same lines come out, whatever the chunks were.

    A segment that two chunks share goes out as its own block, so that chunks need not be copied.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._overflow = 0
        self.bytes_in = 0

    def feed(self, chunk: bytes) -> Iterator[Block]:
        """The segments that are complete with ``chunk``."""
        if not chunk:
            return
        self.bytes_in += len(chunk)
        end = _last_terminator(chunk) + 1
        if end == 0:
            self._hold(chunk)
            return
        start = 0
        if self._rest:
            first = _first_terminator(chunk)
            if self._overflow or len(self._rest) + first > LONGEST + 1:
                self._hold(chunk[:first])
                yield Block(self._rest + chunk[first : first + 1], self._overflow)
            else:
                yield Block(self._rest + chunk[: first + 1])
            self._rest, self._overflow = b"", 0
            start = first + 1
        if start < end:
            yield Block(memoryview(chunk)[start:end])
        self._hold(chunk[end:])

    def ready(self, chunk: bytes | memoryview) -> bool:
        """Whether ``feed`` would give back ``chunk`` as one block."""
        return not self._rest and len(chunk) > 0 and chunk[-1] == 10

    @property
    def state(self) -> tuple[bytes, int, int]:
        """(the half segment, its bytes beyond that, bytes that came in): all that the next chunk depends on."""
        return self._rest, self._overflow, self.bytes_in

    @state.setter
    def state(self, state: tuple[bytes, int, int]) -> None:
        self._rest, self._overflow, self.bytes_in = state

    def close(self) -> Iterator[Block]:
        """The last segment, if the stream did not end with a terminator."""
        if self._rest:
            yield Block(self._rest + b"\n", self._overflow)
        self._rest, self._overflow = b"", 0

    def _hold(self, data: bytes) -> None:
        rest = self._rest + data
        room = LONGEST + 1  # one more than is kept, so that the block itself shows that something was cut
        self._overflow += max(0, len(rest) - room)
        self._rest = rest[:room]


def _last_terminator(chunk: bytes) -> int:
    end = chunk.rfind(b"\n")
    return max(end, chunk.rfind(b"\r", end + 1), chunk.rfind(b"\0", end + 1))


def _first_terminator(chunk: bytes) -> int:
    found = re.search(rb"[\n\r\0]", chunk)
    assert found is not None
    return found.start()
