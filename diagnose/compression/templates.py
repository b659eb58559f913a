"""Lines -> groups: the lines that one statement of a program printed, whatever it put into them.

The native core gives each line a key (``_keys.h``): its words, with one mark for values in a row. Keys that differ in one word
are one group if there is evidence that this word is a value too: it has many values, or a value stands in its place often.
Likeness is no evidence. All keys are looked at together, so that the order of the lines does not matter. Without the native
core, lines are one group if they differ in their digits only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import combinations
from typing import Final

from diagnose.matching.databases import core

_VALUES: Final = 5
"""so many words in one place make a value of it"""
_SAYS_LITTLE: Final = 2
"""words of a key, with the one that may vary, which are too few for five to be evidence"""
_VALUES_THERE: Final = 10
_VALUES_ALONE: Final = 20
"""the same where nothing but signs is left of the key"""
_MOST_WORDS: Final = 40
_MOST_PAIRED: Final = 12
_MOST_KEYS: Final = 20_000
_ROUNDS: Final = 6
VALUE: Final = b"\x01"
"""stands in a key where a value stood"""
_VALUES_IN_A_ROW: Final = re.compile(rb"\x01[\x01.:/,#*-]*\x01|\x01+")
_WORDS: Final = re.compile(rb"[\w\x80-\xff]+(?:[.@/:+~$*%&#-]+[\w\x80-\xff]+)*")
_DIGITS: Final = re.compile(rb"\d+")
_LETTER: Final = re.compile(rb"[A-Za-z\x80-\xff]")


class Templates:
    """Gathers the keys of lines. In bounded memory: with too many keys, those of a single line are forgotten."""

    def __init__(self) -> None:
        self._lines: Counter[bytes] = Counter()

    def add(self, body: bytes, lines: int = 1) -> bytes:
        """Take a line, without its prefixes. Returns its key."""
        key: bytes = core.keyed(body)[0] if core is not None else _DIGITS.sub(b"0", body)
        if len(self._lines) >= _MOST_KEYS and key not in self._lines:
            self._lines = Counter({key: lines for key, lines in self._lines.items() if lines > 1})
            if len(self._lines) >= _MOST_KEYS:
                self._lines = Counter(dict(self._lines.most_common(_MOST_KEYS // 2)))
        self._lines[key] += lines
        return key

    def groups(self) -> dict[bytes, bytes]:
        """The group of each key: the key with values in place of the words that vary."""
        groups = {key: key for key in self._lines}
        if core is None:
            return groups
        lines = self._lines
        for _ in range(_ROUNDS):
            united = _united(lines)
            if not united:
                break
            groups = {key: united.get(group, group) for key, group in groups.items()}
            lines = Counter[bytes]()
            for key, count in self._lines.items():
                lines[groups[key]] += count
        return groups


def _united(lines: Counter[bytes]) -> dict[bytes, bytes]:
    """The keys that become more general, and what they become."""
    without: dict[bytes, list[bytes]] = {}
    words: dict[bytes, set[bytes]] = defaultdict(set)
    for key in lines:
        without[key] = []
        for start, end in _places(key):
            general = _general(key, ((start, end),))
            without[key].append(general)
            words[general].add(key[start:end])
    united = {}
    for key, generals in without.items():
        open_ones = [
            (evidence, general)
            for general in generals
            if (evidence := len(words[general]) + lines.get(general, 0)) >= _needed(len(generals))
            and (len(generals) > 1 or len(words[general]) >= _VALUES_ALONE)
        ]
        if open_ones:
            united[key] = max(open_ones)[1]
        elif 2 < len(generals) <= _MOST_PAIRED:
            both = (_general(key, pair) for pair in combinations(_places(key), 2))
            known = [(lines[general], general) for general in both if lines.get(general, 0) >= _VALUES]
            if known:
                united[key] = max(known)[1]
    return united


def _needed(words: int) -> int:
    return _VALUES if words > _SAYS_LITTLE else _VALUES_THERE


def _places(key: bytes) -> list[tuple[int, int]]:
    places = [found.span() for found in _WORDS.finditer(key) if _LETTER.search(found[0])]
    return places if len(places) <= _MOST_WORDS else []


def _general(key: bytes, places: tuple[tuple[int, int], ...]) -> bytes:
    """The key with values in ``places``."""
    parts, begin = [], 0
    for start, end in places:
        parts += [key[begin:start], VALUE]
        begin = end
    return _VALUES_IN_A_ROW.sub(VALUE, b"".join([*parts, key[begin:]]))
