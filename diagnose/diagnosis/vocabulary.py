"""Patterns, a line -> those of them that match it, found quickly.

To try hundreds of patterns at each line takes milliseconds. Nearly every pattern needs certain words: a line that it matches
contains one of them, and often one of some others, too. To look for words in a line is much faster than to try a pattern, so
the words are looked for first, and a pattern is tried only if all that it needs is there. The answer is the same.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from diagnose.matching.databases import core

_parser: Any = __import__("re._parser", fromlist=["parse"])
_REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
_SHORTEST: Final = 2
"""a single letter is in nearly every line"""
_ENOUGH: Final = 6
"""a longer word is not rarer"""
_FEW: Final = 4
"""of so many letters, any of which may stand there, each is tried"""
_MANY: Final = 6
"""of so many words the native core finds those that are there faster than Python"""
_MOST_KNOWN: Final = 4096
"""of so many sets of words it is known which patterns they make possible"""
_ALSO: Final = str.maketrans({"\u017f": "s", "\u0131": "i"})
"""what else ``re.IGNORECASE`` takes for an ASCII letter, and ``str.lower`` does not"""

Clause = frozenset[str]
"""words, one of which is in every line in which a pattern finds something"""


class Words:
    """Words, to find which of them stand in a line."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        many = core is not None and len(words) >= _MANY
        self._index = core.Words(tuple(word.encode("utf-8", "replace") for word in words)) if many else None

    def among(self, text: str) -> list[int]:
        """The numbers of the words that stand in ``text``; perhaps more, if a line has what is no text."""
        if self._index is not None:
            found: list[int] = self._index.found(text.encode("utf-8", "replace"))
            return found
        return [number for number, word in enumerate(self._words) if word in text]


class Sought:
    """One pattern."""

    def __init__(self, pattern: str) -> None:
        self.whole = re.compile(pattern)
        self._exact = not self.whole.flags & re.IGNORECASE
        words = sorted(needed(pattern, exact=self._exact), key=len)
        self._words = Words(words) if words else None

    def search(self, text: str) -> re.Match[str] | None:
        """What ``re`` finds in ``text``."""
        return self.whole.search(text) if self._may_be_in(text) else None

    def match(self, text: str) -> re.Match[str] | None:
        """What ``re`` finds at the beginning of ``text``."""
        return self.whole.match(text) if self._may_be_in(text) else None

    def _may_be_in(self, text: str) -> bool:
        return self._words is None or bool(self._words.among(text if self._exact else small(text)))


class Vocabulary:
    """Patterns that ignore case, each known by its place in their order."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._always: list[int] = []
        """the patterns that need no word"""
        of_word: dict[str, set[int]] = {}
        """word -> the numbers of the clauses that it is in"""
        self._pattern_of: list[int] = []
        """by the number of a clause"""
        self._clauses: list[int] = []
        """how many each pattern has"""
        for number, pattern in enumerate(patterns):
            clauses = needs(pattern)
            for clause in clauses:
                for word in clause:
                    of_word.setdefault(word, set()).add(len(self._pattern_of))
                self._pattern_of.append(number)
            self._clauses.append(len(clauses))
            if not clauses:
                self._always.append(number)
        self._words = Words(list(of_word))
        self._of_word = [frozenset(clauses) for clauses in of_word.values()]
        self._known: dict[tuple[int, ...], list[int]] = {}
        """words -> the patterns that they make possible, for the words of lately: most lines of a log are like others"""

    def found(self, text: str) -> Iterator[int]:
        """The patterns that match somewhere in ``text``, by number, lowest first."""
        return (number for number in self._possible(text) if self._made(number).search(text) is not None)

    def any(self, text: str) -> bool:
        """Whether one of the patterns matches somewhere in ``text``."""
        return next(self.found(text), None) is not None

    def _possible(self, text: str) -> list[int]:
        """The patterns of which all clauses have a word in ``text``."""
        words = tuple(self._words.among(small(text)))
        if not words:
            return self._always
        known = self._known.get(words)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known = {}
            known = self._known[words] = self._with(words)
        return known

    def _with(self, words: Sequence[int]) -> list[int]:
        """The patterns of which all clauses have one of these words."""
        met: dict[int, int] = {}
        for clause in frozenset().union(*[self._of_word[word] for word in words]):
            number = self._pattern_of[clause]
            met[number] = met.get(number, 0) + 1
        return sorted([*self._always, *(number for number, count in met.items() if count == self._clauses[number])])

    def _made(self, number: int) -> re.Pattern[str]:
        return _compiled(self.patterns[number])


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def small(text: str) -> str:
    """``text`` in small letters. A pattern that ignores case matches no word in ``text`` that is not in this."""
    return text.lower() if text.isascii() else text.translate(_ALSO).lower()


def alternatives(pattern: str) -> list[str]:
    """``pattern`` cut where it says "or" on its outermost level."""
    found, depth, begin = [], 0, 0
    first = -1
    """where the first sign of a set may stand, in one"""
    for sign in re.finditer(r"\\.|\[\^?|[\]()|]", pattern, re.DOTALL):
        what, at = sign[0], sign.start()
        if first >= 0:
            if what == "]" and at > first:
                first = -1
        elif what[0] == "[":
            first = sign.end()
        elif what in "()":
            depth += 1 if what == "(" else -1
        elif what == "|" and not depth:
            found.append(pattern[begin:at])
            begin = sign.end()
    return [*found, pattern[begin:]]


def needed(pattern: str, *, exact: bool = False) -> Clause:
    """Words in small letters, one of which is in every line in which ``pattern`` finds something, also if it ignores case; or
    none.

    ``exact``: as the pattern spells them, which does not ignore case.
    """
    return max(needs(pattern, exact=exact), key=_worth, default=frozenset())


def needs(pattern: str, *, exact: bool = False) -> list[Clause]:
    """All clauses: of each of them, a word is in every line in which ``pattern`` finds something."""
    return list(dict.fromkeys(_of_sequence(_parser.parse(pattern), exact)))


def _of_sequence(parts: Any, exact: bool, before: Sequence[str] = ()) -> list[Clause]:
    """The clauses of the parts, all of which must match one after the other. The letters ``before`` stand just before them."""
    found: list[Clause] = []
    letters = list(before)

    def end_word() -> None:
        if len(letters) >= _SHORTEST:
            found.append(frozenset(("".join(letters),)))
        letters.clear()

    for operation, argument in parts:
        name = str(operation)
        if name == "LITERAL":
            letters.append(chr(argument) if exact else chr(argument).lower())
            continue
        if name == "AT":  # it matches no letter
            continue
        lead = tuple(letters)
        end_word()
        found += _of_part(name, argument, exact, lead)
    end_word()
    return found


def _of_part(name: str, argument: Any, exact: bool, lead: Sequence[str]) -> list[Clause]:
    """The clauses of one part. The letters ``lead`` stand just before it: ``re`` reads ``Error|Event`` as E and one of two."""
    if name == "SUBPATTERN":
        ignores_case = bool(argument[1] & re.IGNORECASE)
        return [] if exact and ignores_case else _of_sequence(argument[-1], exact, lead)
    if name == "ATOMIC_GROUP":
        return _of_sequence(argument, exact, lead)
    if name == "IN":
        return _of_sign(argument, exact, lead)
    if name == "ASSERT":  # what it looks for ahead or behind is in the line, too
        return _of_sequence(argument[1], exact)
    if name in _REPEATS:
        return _of_sequence(argument[2], exact, lead) if argument[0] else []
    if name == "BRANCH":
        every = [max(_of_sequence(branch, exact, lead), key=_worth, default=None) for branch in argument[1]]
        whole = [clause for clause in every if clause is not None]
        return [frozenset().union(*whole)] if len(whole) == len(every) else []
    return []


def _of_sign(signs: Any, exact: bool, lead: Sequence[str]) -> list[Clause]:
    """The clause of one of a few letters, which makes words only together with those before it."""
    if not lead or len(signs) > _FEW or any(str(name) != "LITERAL" for name, _ in signs):
        return []
    return [frozenset("".join((*lead, chr(sign) if exact else chr(sign).lower())) for _, sign in signs)]


def _worth(words: Clause) -> tuple[int, int]:
    """Long words are rare; and of few words, one is rarer there than of many."""
    return min(min(map(len, words)), _ENOUGH), -len(words)
