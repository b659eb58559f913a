"""A source and a place in it -> what the file itself says there, dropped lines included."""

from __future__ import annotations

from diagnose.reading.encodings import Decoder
from diagnose.reading.lines import clean
from diagnose.reading.sources import Source

_LONGEST = 2000
_BEFORE = 80
"""lines before the window that are read as well, so that a secret which begins there is known for one"""
_MOST_BYTES = 1 << 30


def window(source: Source, first: int, last: int) -> list[tuple[int, str]]:
    """(line number, text) of the lines ``first`` to ``last`` and of some before them. Empty if there is no file."""
    if source.path is None:
        return []
    first = max(1, first - _BEFORE)
    found: list[tuple[int, str]] = []
    decoder, rest, number, seen = Decoder(), b"", 1, 0
    for chunk in Source(source.name, source.path).chunks():
        seen += len(chunk)
        *lines, rest = (rest[:_LONGEST] + decoder.feed(chunk)).split(b"\n")
        if number + len(lines) >= first:
            found += [(n, _shown(line)) for n, line in enumerate(lines, number) if first <= n <= last]
        number += len(lines)
        if number > last or seen > _MOST_BYTES:
            return found
    if rest and first <= number <= last:
        found.append((number, _shown(rest)))
    return found


def _shown(line: bytes) -> str:
    return clean(line[:_LONGEST]).decode("utf-8", "replace").rstrip("\r")
