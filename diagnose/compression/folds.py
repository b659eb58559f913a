"""Kept lines -> fewer kept lines: a line that repeats earlier ones is folded, which means that it is counted and left out.

This needs no rule. The *mask* of a line is its text with typed marks in place of numbers, times, ids, paths and prose
(``_masks.h``). The lines of one mask are one fold. The first lines of a fold stay, and each later one that says something new
(``_folds.h``). A line that sounds like a failure only folds with exact copies. The native core does the work. Without it,
nothing folds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from diagnose.knowledge.metrics import shipped_metrics
from diagnose.matching.databases import core

KEEP: Final = 3
"""so many first lines of a fold stay"""
_MARKS: Final = {
    1: "<number>", 2: "<time>", 3: "<id>", 4: "<path>", 5: "<text>", 6: "<more>", 8: "<bar>",
}  # fmt: skip

Sounds = Callable[[bytes, int], bool]
"""whether a line sounds like a failure: its text, and where its body begins"""


@dataclass(frozen=True, slots=True)
class Folding:
    """That lines are folded, and how."""

    sounds: Sounds
    keep: int = KEEP
    drops: bool = True
    """whether what folds leaves the kept lines; if not, folds only find numbers and runs"""


class Fold(NamedTuple):
    """Lines that were folded together."""

    source: int
    first: int
    """the number of the first of them, which was kept"""
    last: int
    lines: int
    """all lines of this kind, with the first ones that were kept"""
    folded: int
    text: bytes
    """the last one that was folded; only its beginning"""


def available() -> bool:
    """Whether the native core is there, which does the folding."""
    return core is not None


def folds(folding: Folding, state: bytes = b"") -> Any:
    """The folds of one source in the native core. ``state``: go on from there."""
    names = " ".join(sorted(shipped_metrics().keywords)).encode()
    return core.Folds(folding.keep, int.from_bytes(os.urandom(8), "little"), state, names)


def masked(body: bytes) -> str:
    """``body`` as folds see it, for people: two lines fold if this is equal."""
    text = core.masked(body, 0)[0].decode("utf-8", "replace")
    return "".join(_MARKS.get(ord(letter), letter) for letter in text)
