"""Lists of nodes as Slurm writes them: ``gpu-[01-03,7],login1`` -> the names."""

from __future__ import annotations

import itertools
import re

from service.acting.executors.executor import Problem

_MOST = 100_000
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_NAME = re.compile(r"(?:\[[^\[\]]*\]|[^\[\],])+")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> tuple[str, ...]:
    """The names, in order. Problem if it is not such a list: half of one would be worse than none."""
    if not text or text == "(null)":
        return ()
    found: dict[str, None] = {}
    position = 0
    while position < len(text):
        name = _NAME.match(text, position)
        if name is None:
            raise _unreadable(text)
        parts = [_numbers(inside, text) if inside or not plain else [plain] for inside, plain in _PART.findall(name[0])]
        count = 1
        for part in parts:
            count *= len(part)
        if count + len(found) > _MOST:
            raise Problem(f"the list of nodes {text[:80]!r} names more than {_MOST:,}")
        found |= dict.fromkeys("".join(one) for one in itertools.product(*parts))
        position = name.end()
        if position < len(text):
            if text[position] != ",":
                raise _unreadable(text)
            position += 1
    return tuple(found)


def _numbers(inside: str, text: str) -> list[str]:
    """The numbers in brackets. Leading zeros are part of a name."""
    found: list[str] = []
    for one in inside.split(","):
        numbers = _RANGE.fullmatch(one)
        if numbers is None:
            raise _unreadable(text)
        first, last = numbers[1], numbers[2] or numbers[1]
        if int(last) < int(first) or int(last) - int(first) > _MOST:
            raise _unreadable(text)
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _unreadable(text: str) -> Problem:
    return Problem(f"the scheduler's list of nodes cannot be read: {text[:80]!r}")
