"""Patterns, a line -> those of them that match it, found quickly.

To try hundreds of patterns at each line takes milliseconds. Nearly every pattern needs certain words: whatever it matches
contains one of them. To look for a word in a line is much faster than to try a pattern, so the words are looked for first, and
a pattern is tried only if one of its words is there. The answer is the same.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

_parser: Any = __import__("re._parser", fromlist=["parse"])
_REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
_SHORTEST: Final = 2
"""a single letter is in nearly every line"""
_ENOUGH: Final = 6
"""a longer word is not rarer"""
_ALSO: Final = str.maketrans({"\u017f": "s", "\u0131": "i"})
"""what else ``re.IGNORECASE`` takes for an ASCII letter, and ``str.lower`` does not"""


class Sought:
    """One pattern."""

    def __init__(self, pattern: str) -> None:
        self.whole = re.compile(pattern)
        self._words = sorted(needed(pattern), key=len)

    def search(self, text: str) -> re.Match[str] | None:
        """What ``re`` finds in ``text``."""
        return self.whole.search(text) if self._may_be_in(text) else None

    def match(self, text: str) -> re.Match[str] | None:
        """What ``re`` finds at the beginning of ``text``."""
        return self.whole.match(text) if self._may_be_in(text) else None

    def _may_be_in(self, text: str) -> bool:
        low = small(text)
        for word in self._words:  # a loop: any() takes three times as long
            if word in low:
                return True
        return not self._words


class Vocabulary:
    """Patterns that ignore case, each known by its place in their order."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._always: list[int] = []
        """the patterns that need no word"""
        by_word: dict[str, list[int]] = {}
        for number, pattern in enumerate(patterns):
            words = needed(pattern)
            for word in words:
                by_word.setdefault(word, []).append(number)
            if not words:
                self._always.append(number)
        self._by_word = [(word, tuple(numbers)) for word, numbers in by_word.items()]

    def found(self, text: str) -> Iterator[int]:
        """The patterns that match somewhere in ``text``, by number, lowest first."""
        low = small(text)
        possible = set(self._always)
        for numbers in [numbers for word, numbers in self._by_word if word in low]:
            possible.update(numbers)
        return (number for number in sorted(possible) if self._made(number).search(text) is not None)

    def _made(self, number: int) -> re.Pattern[str]:
        return _compiled(self._patterns[number])


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def small(text: str) -> str:
    """``text`` in small letters. A pattern that ignores case matches no word in ``text`` that is not in this."""
    return text.lower() if text.isascii() else text.translate(_ALSO).lower()


def needed(pattern: str) -> frozenset[str]:
    """Words in small letters, one of which is in whatever ``pattern`` matches, also if it ignores case; or none."""
    return _of_sequence(_parser.parse(pattern)) or frozenset()


def _of_sequence(parts: Any) -> frozenset[str] | None:
    """The best words among those of the parts, all of which must match one after the other."""
    best: frozenset[str] | None = None
    letters: list[str] = []

    def offer(words: frozenset[str] | None) -> None:
        nonlocal best
        if words and (best is None or _worth(words) > _worth(best)):
            best = words

    for operation, argument in parts:
        name = str(operation)
        if name == "LITERAL":
            letters.append(chr(argument).lower())
            continue
        if name == "AT":  # it matches no letter
            continue
        offer(_word(letters))
        letters = []
        offer(_of_part(name, argument))
    offer(_word(letters))
    return best


def _of_part(name: str, argument: Any) -> frozenset[str] | None:
    if name == "SUBPATTERN":
        return _of_sequence(argument[-1])
    if name == "ATOMIC_GROUP":
        return _of_sequence(argument)
    if name in _REPEATS:
        return _of_sequence(argument[2]) if argument[0] else None
    if name == "BRANCH":
        every = [_of_sequence(branch) for branch in argument[1]]
        return frozenset().union(*(words for words in every if words)) if all(every) else None
    return None


def _word(letters: list[str]) -> frozenset[str] | None:
    return frozenset(("".join(letters),)) if len(letters) >= _SHORTEST else None


def _worth(words: frozenset[str]) -> tuple[int, int]:
    """Long words are rare; and of few words, one is rarer there than of many."""
    return min(min(map(len, words)), _ENOUGH), -len(words)
