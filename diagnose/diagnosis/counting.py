"""Two lines of one kind -> whether something was counted from the first to the last.

A program whose lines no rule knows still works if a number in them rises: steps, epochs, files, samples.
"""

from __future__ import annotations

import re

_LONGEST = 160
"""so far into a line the number stands that it counts"""
_BACK = 40
_INTEGER = re.compile(r"(?<![\w.+-])\d{1,9}(?!\w|\.\d)")
_WORD = re.compile(r"([^\W\d]+)[^\w.+-]*$")
_SPEAKS = re.compile(r"(?i)rank|pid|proc|worker|node|host|gpu|device|task|thread|port|handler|conn|peer|retr|attempt")
"""words whose number is the name of who speaks, or counts what went wrong"""


def counted_up(first: str, last: str, least: int) -> bool:
    """Whether a number rose by ``least`` or more between these lines (without prefixes), and does not name who speaks."""
    return any(
        word == other and not _SPEAKS.search(word) and till - since >= least
        for (word, since), (other, till) in zip(_integers(first), _integers(last), strict=False)
    )


def _integers(text: str) -> list[tuple[str, int]]:
    """The whole numbers of a line, each with the word before it."""
    text = text[:_LONGEST]
    found = []
    for number in _INTEGER.finditer(text):
        word = _WORD.search(text[max(0, number.start() - _BACK) : number.start()])
        found.append((word[1] if word else "", int(number[0])))
    return found
