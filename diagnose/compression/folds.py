"""What repeats: kept lines in; those that repeat what was kept before are folded, which is to say counted and left out.

No rule is needed for this: a line's *mask* is its text with typed marks in place of numbers, times, ids, paths and prose
(``_masks.h``), and the lines of one mask are one fold. The first lines of a fold stay, and each later one that says something
new (``_folds.h``). What sounds like a failure folds with its own copies only. The work is done in the native core; where it is
missing nothing folds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from diagnose.matching.databases import core

KEEP: Final = 3
"""so many first lines of a fold stay"""
_MARKS: Final = {
    1: "<number>", 2: "<time>", 3: "<id>", 4: "<path>", 5: "<text>", 6: "<more>", 7: "<word>", 8: "<bar>",
}  # fmt: skip

Sounds = Callable[[bytes, int], bool]
"""Whether a line sounds like a failure: its text, and where its body begins"""


@dataclass(frozen=True, slots=True)
class Folding:
    """That lines fold, and how."""

    sounds: Sounds
    keep: int = KEEP


class Fold(NamedTuple):
    """Lines that were folded together."""

    source: int
    first: int
    """the line in which the first of them stands, which was kept"""
    last: int
    lines: int
    """lines of this kind; the first ones were kept"""
    folded: int
    text: bytes
    """the last one that was folded, its beginning"""


def available() -> bool:
    """Whether the native core is there, which does the work; one that was built of older sources cannot."""
    return hasattr(core, "Folds")


def folds(folding: Folding, state: bytes = b"") -> Any:
    """The folds of one source, as the native core has them; ``state`` is where another one stood."""
    return core.Folds(folding.keep, int.from_bytes(os.urandom(8), "little"), state)


def masked(body: bytes) -> str:
    """``body`` as folds see it, for people: what two lines must have in common."""
    text = core.masked(body, 0)[0].decode("utf-8", "replace")
    return "".join(_MARKS.get(ord(letter), letter) for letter in text)
