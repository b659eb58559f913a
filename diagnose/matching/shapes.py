"""Line -> shape: the body with its numbers masked; and the analysis that makes it exact to cache verdicts by shape.

Lines of one shape share one cached verdict. That is exact only for rules that cannot tell two lines of one shape apart.
``sensitivity`` decides this for each rule, from the automaton of its pattern; in doubt the rule is sensitive. For a sensitive
rule, ``relaxed`` writes a pattern that matches whenever the rule could match *some* line of the shape. Only lines of shapes
that it hits are scanned again, one by one.

A *run* is a maximal sequence of digits, or of bytes >= 0x80. A shape has each run replaced by one marker. The claim has two
conditions on the Glushkov automaton of a pattern:

- Every position that takes one byte of a class (digits, high bytes) takes all of them, and may repeat itself (or begins or
  ends the match).
- Of any two different such positions in a row, one can be left out: every way into the first also leads directly to the second,
  or every way out of the second also leads out of the first.

If both hold, a match over a run can be shrunk to a single position and stretched to any length. So the pattern matches all
lines of a shape or none.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from diagnose import __version__, cache

_parser: Any = __import__("re._parser", fromlist=["parse"])
_DIGITS = sum(1 << byte for byte in b"0123456789")
_HIGH = sum(1 << byte for byte in range(0x80, 0x100))
_CLASSES = (_DIGITS, _HIGH)
_ALL = (1 << 256) - 1
_WORD = sum(1 << byte for byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_SPACE = sum(1 << byte for byte in b" \t\n\r\f\v")
_MOST_POSITIONS = 3000

_RUNS = re.compile(rb"[0-9]+|[\x80-\xff]+")


def shape(body: bytes) -> bytes:
    """``body`` with each run of digits as ``0`` and each run of high bytes as ``\\x80``."""
    return _RUNS.sub(lambda run: b"0" if run[0] < b"\x80" else b"\x80", body)


class Unreadable(ValueError):
    """The pattern is not a regular expression as Python understands it."""


@dataclass(slots=True)
class _Part:
    """A piece of the automaton: the positions where it can begin and end, and whether it can be empty."""

    first: set[int]
    last: set[int]
    empty: bool


@dataclass(slots=True)
class _Automaton:
    """Positions are numbered from 1; 0 is the start, -1 the end. ``takes`` is a set of bytes, or the name of an assertion."""

    takes: dict[int, int | str] = field(default_factory=dict)
    follow: dict[int, set[int]] = field(default_factory=dict)
    certain: bool = True

    def position(self, takes: int | str) -> _Part:
        if len(self.takes) >= _MOST_POSITIONS:
            self.certain = False
            return _Part(set(), set(), True)
        number = len(self.takes) + 1
        self.takes[number] = takes
        self.follow[number] = set()
        return _Part({number}, {number}, False)

    def join(self, left: _Part, right: _Part) -> _Part:
        for number in left.last:
            self.follow[number] |= right.first
        return _Part(
            left.first | right.first if left.empty else left.first,
            left.last | right.last if right.empty else right.last,
            left.empty and right.empty,
        )


@functools.lru_cache(maxsize=8192)
def sensitivity(pattern: str) -> str | None:
    """Why the verdict of ``pattern`` may depend on the exact numbers in a line, as a phrase; None if it cannot."""
    automaton = _Automaton()
    whole = _build(_parse(pattern), automaton, _flags(pattern))
    if not automaton.certain:
        return "it has lookaround, a back-reference or very many repeats"
    start, end = 0, -1
    automaton.follow[start] = set(whole.first) | ({end} if whole.empty else set())
    for number in whole.last:
        automaton.follow[number].add(end)
    before: dict[int, set[int]] = {}
    for number, nexts in automaton.follow.items():
        for other in nexts:
            before.setdefault(other, set()).add(number)
    for name, members in (("digits", _DIGITS), ("non-ASCII bytes", _HIGH)):
        if (why := _runs_matter(automaton, before, name, members)) is not None:
            return why
    return None


def _runs_matter(automaton: _Automaton, before: dict[int, set[int]], name: str, members: int) -> str | None:
    """Why a run of ``members`` cannot be made longer or shorter, or others be put in their place."""
    start, end = 0, -1
    for number, takes in automaton.takes.items():
        if isinstance(takes, str) or not takes & members:
            continue
        if takes & members != members:
            return f"it takes some {name} and not others"
        # A first or last position need not repeat itself: a match may begin or end inside a run.
        alone = automaton.follow[number] == {end} or before[number] == {start}
        if number not in automaton.follow[number] and not alone:
            return f"it counts {name}"
        for other in automaton.follow[number] - {number}:
            next_takes = automaton.takes.get(other, "")
            if isinstance(next_takes, str) or not next_takes & members:
                continue
            first_can_go = before[number] - {number} <= before[other]
            second_can_go = automaton.follow[other] - {other} <= automaton.follow[number]
            if not (first_can_go or second_can_go):
                return f"it wants two or more {name} in a row"
    return None


class Analysis(NamedTuple):
    """What is known of a pattern before any line is seen."""

    sensitivity: str | None
    confirmed: bool
    relaxed: str | None
    """only if it is sensitive"""
    steady: bool


_analyses: dict[str, Analysis] = {}
_FEW = 4


def analyse(patterns: Iterable[str]) -> dict[str, Analysis]:
    """The analysis of each pattern. One takes milliseconds, so larger sets are cached on disk."""
    asked = {*patterns}
    missing = asked - _analyses.keys()
    if len(missing) > _FEW:
        # Cached per set, so it does not matter what else the process analysed before.
        ordered = sorted(asked)
        key = cache.key_of(__version__, *Analysis._fields, *ordered)
        known = cache.fetch("analysis", key)
        if known is not None:
            _analyses.update({p: Analysis(*row) for p, row in zip(ordered, json.loads(known), strict=True)})
            return _analyses
        _analyses.update({pattern: _analysis(pattern) for pattern in missing})
        cache.store("analysis", key, json.dumps([_analyses[pattern] for pattern in ordered]).encode())
    _analyses.update({pattern: _analysis(pattern) for pattern in missing if pattern not in _analyses})
    return _analyses


def _analysis(pattern: str) -> Analysis:
    why = sensitivity(pattern)
    return Analysis(why, needs_confirmation(pattern), relaxed(pattern) if why else None, steady(pattern))


def copies(pattern: str) -> int:
    """How often nested counted repeats copy the innermost part of ``pattern``."""
    return _copies(_parse(pattern))


def _copies(tree: Any) -> int:
    most = 1
    for operator, argument in tree:
        name = str(operator)
        if name == "BRANCH":
            inner = max((_copies(part) for part in argument[1]), default=1)
        elif name == "SUBPATTERN":
            inner = _copies(argument[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, greatest, part = argument
            inner = max(1, int(least), int(greatest) if str(greatest) != "MAXREPEAT" else 1) * _copies(part)
        else:
            inner = 1
        most = max(most, inner)
    return most


def anchored(pattern: str) -> bool:
    """Whether every alternative of ``pattern`` matches only from the beginning of a line."""
    tree = _parse(pattern)
    return pattern.startswith("^") and len(tree) > 0 and str(tree[0][1]) == "AT_BEGINNING"


def letters(pattern: str, *, alike: bool = False) -> int:
    """How many letters of the pattern stand, as written, in every line that it matches.

    ``alike``: only letters that are the same in all of these lines. The letters of single alternatives are not.
    """
    return _letters(_parse(pattern), alike)


def _letters(tree: Any, alike: bool) -> int:
    fewest = 0
    for operator, argument in tree:
        name = str(operator)
        if name == "LITERAL":
            fewest += chr(argument).isascii() and chr(argument).isalpha()
        elif name == "BRANCH":
            fewest += 0 if alike else min(_letters(part, alike) for part in argument[1])
        elif name == "SUBPATTERN":
            fewest += _letters(argument[3], alike)
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and int(argument[0]):
            fewest += _letters(argument[2], alike)
    return fewest


def said(pattern: str) -> str:
    """The text that stands, as written, in every line that the pattern matches, with blanks for all else."""
    return _said(_parse(pattern))


def _said(tree: Any) -> str:
    parts: list[str] = []
    for operator, argument in tree:
        name = str(operator)
        if name == "LITERAL":
            parts.append(chr(argument))
        elif name == "SUBPATTERN":
            parts.append(_said(argument[3]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and int(argument[0]):
            parts.append(f" {_said(argument[2])} ")
        elif name != "AT":
            parts.append(" ")
    return "".join(parts)


class Way(NamedTuple):
    """One alternative of a pattern, or a group that may be left out."""

    said: str
    """the text that it spells out"""
    speaks: bool
    """whether it may match a word that it does not spell out"""
    pattern: str
    """matches what goes this way"""


def ways(pattern: str) -> Iterator[Way]:
    """Each alternative, and each group that may be left out.

    A line goes this way if its pattern matches it. What surrounds a repeated group may be matched a few times more or
    less there: that is enough to say that no line goes this way.
    """
    yield from _ways(list(_parse(pattern)), _flags(pattern))


def _ways(tree: Sequence[Any], flags: int) -> Iterator[Way]:
    for number, (operator, argument) in enumerate(tree):
        for way in _ways_of(str(operator), argument, flags):
            yield way._replace(pattern=_text(tree[:number], flags) + way.pattern + _text(tree[number + 1 :], flags))


def _ways_of(operator: str, argument: Any, flags: int) -> Iterator[Way]:
    if operator == "BRANCH":
        for part in argument[1]:
            yield Way(_said(part), _speaks(part, flags), f"(?:{_text(part, flags)})")
            yield from _ways(list(part), flags)
    elif operator == "SUBPATTERN":
        within = (flags | argument[1]) & ~argument[2]
        yield from (way._replace(pattern=f"(?:{way.pattern})") for way in _ways(list(argument[3]), within))
    elif operator in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = argument
        once, again = f"(?:{_text(inner, flags)})", ""
        if most == _parser.MAXREPEAT or int(most) > 1:
            again = f"{once}*"
        if int(least) == 0:
            yield Way(_said(inner), _speaks(inner, flags), again + once + again)
        yield from (way._replace(pattern=f"{again}(?:{way.pattern}){again}") for way in _ways(list(inner), flags))


def _mask(signs: bytes) -> int:
    return functools.reduce(int.__or__, (1 << sign for sign in signs), 0)


_LETTERS = _mask(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = _mask(b"0123456789")
_NUMERALS = _DIGITS | _mask(b"abcdefABCDEF")
_MULTIPLES = _mask(b"kKmMgGtTpPuUnN")
"""of units: kB, MiB, ns"""


def _speaks(tree: Iterable[Any], flags: int) -> bool:
    """Whether it may match a word that it does not spell out: two letters side by side, one of them of a class."""
    run, chosen = 0, False
    for operator, argument in tree:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            most, inner = argument[1], list(argument[2])
            often = most == _parser.MAXREPEAT or int(most) > 1
            if _speaks([*inner, *inner] if often else inner, flags):
                return True
            name, argument = (str(inner[0][0]), inner[0][1]) if len(inner) == 1 else ("", None)
        elif name in ("SUBPATTERN", "BRANCH"):
            parts = [argument[3]] if name == "SUBPATTERN" else argument[1]
            within = (flags | argument[1]) & ~argument[2] if name == "SUBPATTERN" else flags
            if any(_speaks(part, within) for part in parts):
                return True
        if name == "AT":
            continue
        letter = name in _ATOMS and _may_be_letter(name, argument, flags)
        run, chosen = (run + 1, chosen or name != "LITERAL") if letter else (0, False)
        if run > 1 and chosen:
            return True
    return False


def _may_be_letter(operator: str, argument: Any, flags: int) -> bool:
    """Whether a sign may be a letter of a word. Digits with letters up to f are of a number, and multiples of a unit."""
    signs = _bytes_of(operator, argument, flags)
    if operator != "LITERAL" and (not signs & ~_MULTIPLES or (signs & _DIGITS and not signs & ~_NUMERALS)):
        return False
    return bool(signs & _LETTERS)


_PLACES = {"AT_BEGINNING": "^", "AT_BEGINNING_STRING": "^", "AT_END": "$", "AT_END_STRING": "$", "AT_BOUNDARY": r"\b"}


def _text(tree: Iterable[Any], flags: int) -> str:
    """The pattern of a tree; what stands around a text is left out."""
    return "".join(_text_of(str(operator), argument, flags) for operator, argument in tree)


def _text_of(operator: str, argument: Any, flags: int) -> str:
    if operator in _ATOMS:
        return _class_text(_bytes_of(operator, argument, flags))
    if operator == "BRANCH":
        return "(?:" + "|".join(_text(part, flags) for part in argument[1]) + ")"
    if operator == "SUBPATTERN":
        return f"(?:{_text(argument[3], (flags | argument[1]) & ~argument[2])})"
    if operator in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = argument
        upper = "" if most == _parser.MAXREPEAT else str(int(most))
        return f"(?:{_text(inner, flags)}){{{int(least)},{upper}}}"
    return _PLACES.get(str(argument), "") if operator == "AT" else ""


@functools.lru_cache(maxsize=8192)
def needs_confirmation(pattern: str) -> bool:
    """Whether Hyperscan can only pre-filter for ``pattern``: it has look-around, a back-reference or a possessive repeat."""
    return _looks_around(_parse(pattern))


def _looks_around(tree: Any) -> bool:
    for operator, argument in tree:
        name = str(operator)
        if name in _BEYOND_HYPERSCAN:
            return True
        inner: list[Any] = []
        if name == "BRANCH":
            inner = argument[1]
        elif name == "SUBPATTERN":
            inner = [argument[3]]
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            inner = [argument[2]]
        if any(_looks_around(part) for part in inner):
            return True
    return False


_BEYOND_HYPERSCAN = {"ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS", "POSSESSIVE_REPEAT", "ATOMIC_GROUP"}


def relaxed(pattern: str) -> str:
    """A Hyperscan pattern that matches every line of each shape of which ``pattern`` matches one line."""
    return _flag_prefix(pattern) + _relax(_parse(pattern), _flags(pattern))


_RUN_BYTES = _DIGITS | _HIGH
_END = 1 << 256
"""beside the bytes that may come next: the match may end"""


class _Unsteady(Exception):
    """A match may begin or end inside a run."""


@functools.lru_cache(maxsize=8192)
def steady(pattern: str) -> bool:
    """Whether ``pattern`` surely finds and captures the same pieces in every line of a shape.

    The claim: a backtracking matcher never stops inside a run. It enters a run only through a class without upper bound that
    takes all bytes of the run's class, and nothing after it may take a byte of that class. So if such a class stops inside a
    run, what comes next fails; and a greedy one that ends the match has taken the whole run. Between runs, lines of one shape
    are equal, and so is all that the matcher does.
    """
    try:
        return not _next_of(_parse(pattern), _flags(pattern), _END) & (_RUN_BYTES | _END)
    except _Unsteady:
        return False


def _next_of(tree: Any, flags: int, after: int) -> int:
    """The bytes that ``tree`` may take first. ``after`` are those that may follow it."""
    for operator, argument in reversed(list(tree)):
        after = _next_of_piece(str(operator), argument, flags, after)
    return after


def _next_of_piece(operator: str, argument: Any, flags: int, after: int) -> int:
    if operator in _ATOMS:
        taken = _bytes_of(operator, argument, flags)
        if taken & _RUN_BYTES:
            raise _Unsteady
        return taken
    if operator == "AT" and str(argument) != "AT_NON_BOUNDARY":
        return after  # it holds or fails for the whole shape, and never inside a run
    if operator == "SUBPATTERN":
        _, more, fewer, inner = argument
        return _next_of(inner, (flags | more) & ~fewer, after)
    if operator == "BRANCH":
        return functools.reduce(int.__or__, (_next_of(branch, flags, after) for branch in argument[1]))
    if operator not in ("MAX_REPEAT", "MIN_REPEAT"):
        raise _Unsteady
    least, most, inner = argument
    skipped = after if least == 0 else 0
    if len(inner) != 1 or str(inner[0][0]) not in _ATOMS:
        again = _next_of(inner, flags, after)
        return _next_of(inner, flags, after | again) | skipped
    taken = _bytes_of(str(inner[0][0]), inner[0][1], flags)
    for members in _CLASSES:
        if taken & members:
            counts = least > 1 or most != _parser.MAXREPEAT
            stops_early = operator == "MIN_REPEAT" and after & _END
            if taken & members != members or counts or stops_early or after & members:
                raise _Unsteady
    return taken | skipped


_ATOMS = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}


@functools.lru_cache(maxsize=64)
def _parse(pattern: str) -> Any:
    """The syntax tree of ``pattern``. It is shared by several callers, so nobody may change it."""
    with warnings.catch_warnings():
        # Hyperscan already reads these differently, such as [[:digit:]]; Python warns that it may one day.
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return _parser.parse(pattern.encode("utf-8"), 0)
        except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError) as error:
            raise Unreadable(str(error)) from None


def _flags(pattern: str) -> int:
    return int(_parse(pattern).state.flags)


def _flag_prefix(pattern: str) -> str:
    flags = _flags(pattern)
    letters = "".join(letter for letter, flag in (("i", re.I), ("s", re.S)) if flags & flag)
    return f"(?{letters})" if letters else ""


def _build(tree: Any, automaton: _Automaton, flags: int) -> _Part:
    whole = _Part(set(), set(), True)
    for operator, argument in tree:
        whole = automaton.join(whole, _piece(str(operator), argument, automaton, flags))
    return whole


def _piece(operator: str, argument: Any, automaton: _Automaton, flags: int) -> _Part:
    if operator in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return automaton.position(_bytes_of(operator, argument, flags))
    if operator == "AT":
        name = str(argument)
        if name not in ("AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING", "AT_BOUNDARY"):
            automaton.certain = False  # \B can hold inside a run
        return automaton.position(name)
    if operator == "BRANCH":
        parts = [_build(branch, automaton, flags) for branch in argument[1]]
        return _Part(
            set().union(*(part.first for part in parts)),
            set().union(*(part.last for part in parts)),
            any(part.empty for part in parts),
        )
    if operator == "SUBPATTERN":
        _, add, drop, inner = argument
        return _build(inner, automaton, (flags | add) & ~drop)
    if operator in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = argument
        return _repeat(int(least), None if most == _parser.MAXREPEAT else int(most), inner, automaton, flags)
    automaton.certain = False
    return _Part(set(), set(), True)


def _repeat(least: int, most: int | None, inner: Any, automaton: _Automaton, flags: int) -> _Part:
    """``inner`` copied as often as it must and may occur. Without an upper bound the last copy loops."""
    whole = _Part(set(), set(), True)
    copies = max(least, 1) if most is None else most
    for copy in range(copies):
        if not automaton.certain:
            break
        part = _build(inner, automaton, flags)
        if most is None and copy == copies - 1:
            for number in part.last:
                automaton.follow[number] |= part.first
        if copy >= least:
            part.empty = True
        whole = automaton.join(whole, part)
    return whole


def _bytes_of(operator: str, argument: Any, flags: int) -> int:
    if operator == "ANY":
        return _ALL if flags & re.S else _ALL & ~(1 << 10)
    if operator == "LITERAL":
        return _cased(1 << argument, flags)
    if operator == "NOT_LITERAL":
        return _ALL & ~_cased(1 << argument, flags)
    taken, negate = 0, False
    for kind, value in argument:
        name = str(kind)
        if name == "NEGATE":
            negate = True
        elif name == "LITERAL":
            taken |= 1 << value
        elif name == "RANGE":
            taken |= sum(1 << byte for byte in range(value[0], value[1] + 1))
        else:
            taken |= _category(str(value))
    taken = _cased(taken, flags)
    return _ALL & ~taken if negate else taken


@functools.cache
def _category(name: str) -> int:
    base = _DIGITS if "DIGIT" in name else _SPACE if "SPACE" in name else _WORD
    return _ALL & ~base if "NOT" in name else base


def _cased(taken: int, flags: int) -> int:
    if flags & re.I:
        for byte in range(26):
            if taken & (1 << (65 + byte) | 1 << (97 + byte)):
                taken |= 1 << (65 + byte) | 1 << (97 + byte)
    return taken


def _relax(tree: Any, flags: int) -> str:
    return "".join(_relax_piece(str(operator), argument, flags) for operator, argument in tree)


def _relax_piece(operator: str, argument: Any, flags: int) -> str:
    if operator in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        taken = _bytes_of(operator, argument, flags)
        wider = taken
        for members in _CLASSES:
            if taken & members:
                wider |= members
        return _class_text(wider) + ("*" if any(taken & members for members in _CLASSES) else "")
    if operator == "AT":
        name = str(argument)
        return {"AT_BEGINNING": "^", "AT_BEGINNING_STRING": "^", "AT_END": "$", "AT_END_STRING": "$"}.get(name, "")
    if operator == "BRANCH":
        return "(?:" + "|".join(_relax(branch, flags) for branch in argument[1]) + ")"
    if operator in ("SUBPATTERN", "ATOMIC_GROUP"):
        inner = argument[3] if operator == "SUBPATTERN" else argument
        if operator == "SUBPATTERN":
            flags = (flags | argument[1]) & ~argument[2]
        return f"(?:{_relax(inner, flags)})"
    if operator in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = argument
        body = _relax(inner, flags)
        # If numbers are involved, the count may change with their length. Else it is as written.
        if body.endswith("*") or "]*" in body:
            return f"(?:{body})*" if not _is_star(body) else body
        upper = "" if most == _parser.MAXREPEAT else str(int(most))
        return f"(?:{body}){{{int(least)},{upper}}}"
    if operator in ("ASSERT", "ASSERT_NOT"):
        return ""  # without a condition the pattern matches more
    return ".*"


def _is_star(body: str) -> bool:
    return body.startswith("[") and body.endswith("]*") and body.count("]") == 1


@functools.lru_cache(maxsize=4096)
def _class_text(taken: int) -> str:
    if taken == _ALL:
        return r"[\x00-\xff]"
    return "[" + "".join(_ranges(taken)) + "]"


def _ranges(taken: int) -> Iterable[str]:
    byte = 0
    while byte < 256:
        if taken >> byte & 1:
            last = byte
            while last < 255 and taken >> (last + 1) & 1:
                last += 1
            yield f"\\x{byte:02x}" if last == byte else f"\\x{byte:02x}-\\x{last:02x}"
            byte = last
        byte += 1
