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
_ENTRY = 300
"""about so many bytes for what one function says of a line, besides the text"""
_UNKNOWN: Any = object()


class Memory:
    """What is known, in two generations: what nobody asks about while one fills is forgotten.

    Threads may share it. If two meet in a change of generations, something is forgotten too early, and worked out again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.young: dict[Hashable, Any] = {}
        self.old: dict[Hashable, Any] = {}
        self._size = 0

    def keep(self, key: Hashable, found: Any, size: int) -> None:
        """``found`` is known by ``key``, a text of this size and what is asked of it: new, or asked about again."""
        self._size += size + _ENTRY
        if self._size > self._most:
            self.old, self.young, self._size = self.young, {}, 0
        self.young[key] = found

    def __len__(self) -> int:
        return len(self.young) + len(self.old)


_LINES = Memory(_MOST)


def remembered(function: Callable[[str, *More], T]) -> Callable[[str, *More], T]:
    """``function`` of a line, and perhaps of more that can be hashed. It must be pure, and nobody may change what it returns.

    An error is not remembered.
    """

    @functools.wraps(function)
    def ask(text: str, *more: *More) -> T:
        key, lines = (function, text, *more), _LINES
        found = lines.young.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = lines.old.get(key, _UNKNOWN)
            if found is _UNKNOWN:
                found = function(text, *more)
            lines.keep(key, found, len(text))
        return found  # type: ignore[no-any-return]

    return ask
