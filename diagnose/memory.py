"""What was found out about a line, for as long as lines like it are asked about.

A job that keeps failing is judged again and again, and nearly all of its lines were there the last time. What a line says by
itself does not change, so a ``remembered`` function works it out once. The verdict cannot differ: only the same text gives the
same answer. All jobs share one memory of bounded size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
More = TypeVarTuple("More")

_MOST = 16 << 20
"""about so many bytes in each generation"""
_ENTRY = 800
"""about so many bytes for what is known of a line, besides its text"""
_UNKNOWN: Any = object()


class Memory:
    """Texts with what is known of them, in two generations: what nobody asks about while one fills is forgotten.

    Threads may share it. If two meet in a change of generations, something is forgotten too early, and worked out again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[str, dict[Hashable, Any]] = {}
        self._old: dict[str, dict[Hashable, Any]] = {}
        self._size = 0

    def of(self, text: str) -> dict[Hashable, Any]:
        """What is known of ``text``, to be looked up and added to."""
        known = self._young.get(text)
        if known is None:
            known = self._old.get(text)
            if known is None:
                known = {}
            self._size += 2 * len(text) + _ENTRY
            if self._size > self._most:
                self._old, self._young, self._size = self._young, {}, 0
            self._young[text] = known
        return known

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


_LINES = Memory(_MOST)


def remembered(function: Callable[[str, *More], T]) -> Callable[[str, *More], T]:
    """``function`` of a line, and perhaps of more that can be hashed. It must be pure, and nobody may change what it returns.

    An error is not remembered.
    """

    @functools.wraps(function)
    def ask(text: str, *more: *More) -> T:
        known = _LINES.of(text)
        key = (function, *more) if more else function
        found = known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = known[key] = function(text, *more)
        return found  # type: ignore[no-any-return]

    return ask
