"""Lines that a terminal broke at its last column -> the lines that were printed.

Such a source has no line longer than a usual width of terminals and printers, and words are torn there. The joined line stands
in the place of its first part. Each other part becomes an empty line, so that all lines keep their numbers. Lines are held back
only after one that ends exactly at such a column.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from diagnose.reading.prefixes import body_start

_WIDTHS = frozenset((72, 79, 80, 100, 120, 132, 160, 200, 240))
_USUAL = frozenset((80, 100, 120, 132))
"""at these widths one torn word is enough"""
_WIDEST = max(_WIDTHS)
_SURE = 3
"""torn words that are enough at any width"""
_MOST_HELD = 96
_MOST_JOINED = 40
_ATTENTIVE = 65536
"""after so many bytes without a sign of a column, a source has none"""
_BEGINS = re.compile(
    rb"\s*(?:Traceback \(most|File \"|at |\[?\d{1,4}[-/]\d\d[-/]\d\d[ T]\d|[\w.]+(?:Error|Exception|Warning): |[EWIF]\d{4} "
    rb"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\[\w*\d\]|[-=*#+|_~]{3}|[A-Za-z0-9][\w.-]*:\d+:\d+ \["
    rb"|srun: |slurmstepd: |\[ *\d+\.\d+\])"
)
"""how a new line begins"""
_SHAPE = re.compile(rb"[0-9]+")


class Unwrap:
    """Joins the lines of one source. Lines go in and come out without their line ends."""

    def __init__(self) -> None:
        self.width = 0
        """the column; 0 while it is unknown"""
        self.done = False
        """it is certain that lines are as they were printed"""
        self._longest = 0
        self._seen = 0
        self._held: list[bytes] = []
        self._words = self._torn = self._pairs = 0
        """of the lines that end at the supposed column: torn words, lines that may go on, all of them"""

    def take(self, line: bytes) -> list[bytes]:
        """The lines that can go on now."""
        if self.done:
            return [line]
        width = _width(line)
        self._seen += len(line) + 1
        if self.width:
            return self._join(line, width)
        if width > max(self._longest, 1) and (self._held or width > _WIDEST):
            self._widen(width)  # longer than the supposed last column
            released = self._release()
            self.done = width > _WIDEST
            if self.done or width not in _WIDTHS:
                return [*released, line]
            self._held = [line]
            return released
        if width > self._longest:
            self._widen(width)
        if not self._held and (width not in _WIDTHS or width < self._longest):
            self.done = self._seen > _ATTENTIVE
            return [line]
        self._held.append(line)
        return self._decide() if len(self._held) >= _MOST_HELD else []

    @property
    def holds(self) -> bool:
        """Whether lines wait for those after them."""
        return bool(self._held)

    def pause(self) -> list[bytes]:
        """What is held, if nothing has come after it for a while. Where no column is known yet, and too little speaks for one,
        the lines go on as they are, and what speaks for it is remembered.
        """
        lines = [] if self.width else self._joined(_SURE)  # which may find the column
        return [*lines, *(self._flush() if self.width else self._release())]

    def close(self) -> list[bytes]:
        """What is still held, after the last line."""
        lines = [] if self.width else self._decide()
        return [*lines, *self._flush()]

    @property
    def state(self) -> list[Any]:
        held = [line.decode("latin-1") for line in self._held]
        return [self.width, self.done, self._longest, self._seen, held, self._words, self._torn, self._pairs]

    @state.setter
    def state(self, state: list[Any]) -> None:
        self.width, self.done, self._longest, self._seen, held, self._words, self._torn, self._pairs = state
        self._held = [line.encode("latin-1") for line in held]

    def _widen(self, width: int) -> None:
        """The last column is there at the earliest. What spoke for another one counts no more."""
        self._longest = width
        self._words = self._torn = self._pairs = 0

    def _decide(self) -> list[bytes]:
        if joined := self._joined(1 if self._longest in _USUAL else _SURE):
            return joined
        self.done = self._seen > _ATTENTIVE or len(self._held) >= _MOST_HELD
        return self._release()

    def _joined(self, words: int) -> list[bytes]:
        """What is held, joined, if so many torn words and most lines speak for the column; else nothing."""
        held = self._held
        torn = [_torn(one, after) for one, after in itertools.pairwise(held) if _width(one) == self._longest]
        self._words += torn.count(2)
        self._torn += sum(map(bool, torn))
        self._pairs += len(torn)
        if self._words < words or self._torn < 0.6 * self._pairs:
            return []
        self.width, self._held = self._longest, []
        return [line for one in held for line in self._join(one, _width(one))]

    def _join(self, line: bytes, width: int) -> list[bytes]:
        if width > self.width:  # not that column after all
            self.done = True
            return [*self._flush(), line]
        out: list[bytes] = []
        if self._held and not _torn(self._held[-1], line):
            out = self._flush()
        self._held.append(line)
        if width < self.width or len(self._held) >= _MOST_JOINED:
            out += self._flush()
        return out

    def _flush(self) -> list[bytes]:
        parts, self._held = self._held, []
        if not parts:
            return []
        joined = b"".join(part.removesuffix(b"\r") for part in parts[:-1]) + parts[-1]
        return [joined, *([b""] * (len(parts) - 1))]

    def _release(self) -> list[bytes]:
        held, self._held = self._held, []
        return held


def _width(line: bytes) -> int:
    line = line.removesuffix(b"\r")
    return len(line) if line.isascii() else len(line.decode("utf-8", "replace"))


def _torn(line: bytes, after: bytes) -> int:
    """2: a word was torn at the end of ``line``; 1: ``after`` may continue it; 0: it is a line of its own."""
    line = line.removesuffix(b"\r")
    if not after.strip() or body_start(after) or _BEGINS.match(after) or len(set(line)) < 8:
        return 0
    if _SHAPE.sub(b"0", line[:8]) == _SHAPE.sub(b"0", after[:8]):
        return 0  # rows of a table
    if line.endswith(b"  "):
        return 0  # filled up with blanks
    end, begin = line[-1:], after[:1]
    if begin.isalnum():
        word = end.isalnum() and not (begin.isupper() and not end.isupper())
    else:
        word = begin in b",;:.)>]}%<" or (begin == b" " and after[1:2].isalnum() and end.isalnum())
    return 2 if word else 1
