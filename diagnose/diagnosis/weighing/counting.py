"""Two lines of one kind -> whether a number rose from the first to the last.

A program whose lines no rule knows is at work if it counts up steps, epochs, files or samples.
"""

from __future__ import annotations

import re

_LONGEST = 160
"""the number must stand within so many characters of the line"""
_BACK = 40
_INTEGER = re.compile(r"(?<![\w.+-])\d{1,9}(?!\w|\.\d)")
_WORD = re.compile(r"([^\W\d]+)[^\w.+-]*$")
_SPEAKS = re.compile(r"(?i)rank|pid|proc|worker|node|host|gpu|device|task|thread|port|handler|conn|peer|retr|attempt")
"""a number after such a word names a speaker, or counts errors"""


def counted_up(first: str, last: str, least: int) -> bool:
    """Whether a number rose by ``least`` or more between these lines (without prefixes), and is not the name of a speaker."""
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
