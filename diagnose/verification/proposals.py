"""Proposal -> refusal: what every proposed rule must pass before it may be tried on new lines.

First the text of the pattern is checked. Then another process compiles it and searches with it (``trial``). Then it is examined
like a shipped rule (``rules.examine``). Last it is matched against the lines that speak for it and against it.
"""

from __future__ import annotations

import functools
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.matching import shapes
from diagnose.matching.matcher import EARLY, Matcher, unusable
from diagnose.verification.numbers import dropped
from diagnose.verification.rules import body_of, examine
from diagnose.verification.trial import COMPILE_S, MEMORY, SEARCH_S

FEWEST_LINES = 3
"""lines that a filter must have been written for"""
_LONGEST = 2000
_MOST_COPIES = 5000
"""how often counted repeats may multiply a pattern: x{50} inside of {50} is 2,500 copies"""
_FEWEST_LETTERS = 4
_FEWEST_BITS, _PLAIN_BITS = 15.0, 6.0
"""what the words of a failure rule must say, and what a word of plain language says at most. "may not" says 10"""
_WORD = re.compile(r"[A-Za-z]{2,}")
_PLAIN = re.compile(r"[A-Z]?[a-z]+\Z")
_OF_NUMBERS = re.compile(r"(?:nan|inf|infinity|[kmgtp]?i?b|[mun]s|min|sec|hr?s|it)\Z", re.I)
"""what may stand in place of a number, or behind it"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a proposal may not act: a name and a sentence."""

    name: str
    what: str
    line: str | None = None


def judged(
    proposals: Sequence[Rule],
    lines: Mapping[str, Sequence[str]],
    evidence: Iterable[str] = (),
    beside: RuleSet | None = None,
    healthy: Iterable[str] = (),
    failures: Sequence[Rule] = (),
) -> dict[str, Refusal]:
    """The refusals among ``proposals``, by id.

    ``lines``: id -> the lines that a rule was written for. Its author need not have seen all of them. ``evidence``: lines that
    no filter may drop, such as the kept lines of known failures. ``healthy``: lines that no failure rule may match, such as the
    kept lines of runs that went well. ``beside``: the rules at work, with examples; by default the shipped ones. ``failures``:
    learned failure rules, whatever their state: no filter may drop what they were made of.
    """
    refused: dict[str, Refusal] = {}
    for rule in proposals:
        if (refusal := _bounds(rule) or _says_enough(rule)) is not None:
            refused[rule.id] = refusal
    left = [rule for rule in proposals if rule.id not in refused]
    tries = [
        (
            rule.pattern,
            [pattern for _, pattern in rule.metrics],
            [*lines.get(rule.id, ()), *(example.line for example in rule.matches + rule.misses)],
        )
        for rule in left
    ]
    for rule, problem in zip(left, _tried(tries), strict=True):
        if problem is not None:
            refused[rule.id] = Refusal("expensive", problem)
    shipped = beside if beside is not None else load(examples=True)
    left = [rule for rule in proposals if rule.id not in refused]
    if left:
        mine = {rule.id for rule in left}
        for objection in examine(RuleSet.of(left), shipped):
            if objection.rule.id in mine and objection.name != "shadowed":
                refused.setdefault(objection.rule.id, Refusal(objection.name, objection.what, objection.line))
    shown = (example.line for rule in failures for example in rule.matches)
    against = {"filters": [*evidence, *shown], "failures": list(healthy)}
    broken = unusable(failures, "plain")
    alarms = [
        Matcher(RuleSet.of(shipped), "plain", reserved=EARLY),
        Matcher(RuleSet.of(rule for rule in failures if rule.id not in broken), "plain"),
    ]
    for rule in left:
        if rule.id not in refused:
            refusal = _on_lines(rule, lines.get(rule.id, ()), against[rule.family], alarms)
            if refusal is not None:
                refused[rule.id] = refusal
    return refused


def _bounds(rule: Rule) -> Refusal | None:
    """What the text of a pattern shows, before anything compiles it."""
    patterns = [rule.pattern, *(pattern for _, pattern in rule.metrics)]
    longest = max(map(len, patterns))
    if longest > _LONGEST:
        return Refusal("expensive", f"the pattern has {longest:,} characters; {_LONGEST:,} are the limit")
    try:
        if shapes.needs_confirmation(rule.pattern):
            return Refusal("expensive", "the pattern looks around or refers back")
        copies = max(map(shapes.copies, patterns))
        anchored = shapes.anchored(rule.pattern)
    except shapes.Unreadable as error:
        return Refusal("does-not-compile", str(error))
    if copies > _MOST_COPIES:
        return Refusal("expensive", f"its counted repeats multiply to {copies:,} copies")
    if rule.family == "filters" and not anchored:
        return Refusal("not-anchored", "an alternative of the pattern does not begin with ^: it could match inside of any line")
    return None


def _says_enough(rule: Rule) -> Refusal | None:
    """A rule must have some literal text, else it could be any line.

    A filter has it outside of its alternatives: then whatever it drops says something that the lines it was written for say
    too. Its examples try one alternative, and another one would be free to drop anything.
    """
    if shapes.letters(rule.pattern, alike=rule.family == "filters") < _FEWEST_LETTERS:
        return Refusal("catch-all", "the pattern has hardly any literal text that all its lines have in common")
    if rule.family == "failures" and _bits(shapes.said(rule.pattern)) < _FEWEST_BITS:
        return Refusal(
            "catch-all", "the words that all its lines have in common are so usual that many other lines have them too"
        )
    return None


def _bits(text: str) -> float:
    """How much the words of a text say: by how few of all example lines have each of them."""
    count, usual = _usual()
    said = {word.lower(): _PLAIN_BITS if _PLAIN.match(word) else math.inf for word in _WORD.findall(text)}
    return sum(min(most, math.log2(count / (usual[word] + 0.5))) for word, most in said.items())


@functools.cache
def _usual() -> tuple[int, Counter[str]]:
    """How many example lines there are of all shipped rules, and how many of them have a word."""
    lines = [example.line for rule in load(examples=True) for example in (*rule.matches, *rule.misses)]
    return len(lines), Counter(word for line in lines for word in {found.lower() for found in _WORD.findall(line)})


def _on_lines(rule: Rule, lines: Sequence[str], against: Sequence[str], alarms: Sequence[Matcher]) -> Refusal | None:
    """Refuse a rule that misses its own lines or matches a line that speaks against it, and a filter with too few lines."""
    import regex

    expression = regex.compile(rule.pattern.encode())
    captures = {name: regex.compile(pattern.encode()) for name, pattern in rule.metrics}
    bodies = [body_of(line) for line in lines]
    for line, body in zip(lines, bodies, strict=True):
        if not expression.search(body):
            return Refusal("misses-its-lines", "it does not match all lines that it was written for", line)
    if rule.family == "filters":
        if len(set(bodies)) < FEWEST_LINES and len(bodies) < FEWEST_LINES:
            return Refusal("overfitted", f"it was written for only {len(bodies)} lines")
        for line, body in zip(lines, bodies, strict=True):
            known = [matcher.rules[number] for matcher in alarms for number in matcher.matches(body)]
            if any(other.family == "failures" and other.reason != "healthy" for other in known):
                return Refusal("drops-evidence", "a failure rule knows a line that it was written for", line)
            if (lost := dropped(body.decode("utf-8", "replace"), expression, captures)) is not None:
                return Refusal("drops-numbers", lost, line)
        if (refusal := _unseen(rule.pattern, bodies)) is not None:
            return refusal
    name, what = {
        "filters": ("drops-evidence", "it matches a line that must stay"),
        "failures": ("alarms-on-healthy", "it matches a line of a run that went well"),
    }[rule.family]
    for line in against:
        try:
            if expression.search(body_of(line), timeout=SEARCH_S):
                return Refusal(name, what, line)
        except TimeoutError:
            return Refusal("expensive", f"searching one line takes more than {SEARCH_S} s", line)
    return None


def _unseen(pattern: str, bodies: Sequence[bytes]) -> Refusal | None:
    """Refuse a filter that has words which none of its lines has: an alternative that nobody printed can be what a failure of
    others prints.
    """
    import regex

    for way in shapes.ways(pattern):
        words = [word for word in _WORD.findall(way.said) if not _OF_NUMBERS.match(word)]
        if not words and not way.speaks:
            continue
        try:
            if not any(regex.search(way.pattern.encode(), body, timeout=SEARCH_S) for body in bodies):
                has = f"its words {' '.join(words)[:80]!r}" if words else "words where it allows any"
                return Refusal("untried", f"none of the lines that it was written for has {has}")
        except TimeoutError:
            return Refusal("expensive", f"searching one line takes more than {SEARCH_S} s")
    return None


def _tried(tries: list[tuple[str, list[str], list[str]]]) -> list[str | None]:
    """What is wrong with compiling each (pattern, its metrics' patterns, its lines) and searching the lines.

    Another process tries it (``trial``), because a bad pattern may end that process.
    """
    found: list[str | None] = []
    while len(found) < len(tries):
        done = subprocess.run(
            [sys.executable, "-m", "diagnose.verification.trial"],
            input=json.dumps(tries[len(found) :]),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = done.stdout.splitlines()
        found += [None if answer == "ok" else answer for answer in answers]
        if done.returncode and len(found) < len(tries):
            if not answers and re.search(r"^(?:ModuleNotFound|Import)Error", done.stderr, re.M):
                raise RuleError(
                    "patterns cannot be tried", where="diagnose.verification.trial", remedy=done.stderr.strip().splitlines()[-1]
                )
            found.append(f"it takes more than {COMPILE_S} s or {MEMORY >> 20} MiB to compile")
    return found
