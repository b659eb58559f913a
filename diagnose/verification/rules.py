"""Rule -> objections: the checks for every rule, shipped or learned.

``examine`` looks at each rule alone (does it compile, do its examples hold, is it too wide, too slow) and then at all of them
together (would a filter drop evidence of a failure, does a failure rule match regular output). Each objection has a name that
docs/rules.md explains. The further checks for learned rules build on these.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.errors import RuleError
from diagnose.knowledge.metrics import shipped_metrics
from diagnose.knowledge.rules import Example, Rule, RuleSet
from diagnose.matching import shapes
from diagnose.matching.databases import ALLOWEMPTY, Pattern, Wheel, compiled, pattern_of
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.series import value_of
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start

CAPTURES = "rank node gpu pci xid host path step loss seconds exitcode signal pid peer missing status vendor".split()

_SLOW_S = 2.0
_LARGE_BYTES = 4 << 20
_SEARCH_S = 1.0
_HOW_FAR_S = 5.0
"""for all heads of a pattern together"""
_PLAIN = b"nothing but some plain words of a program"
# What no filter may match: a filter that takes one of these would take anything.
PROBES = (
    "a",
    "0",
    "hello world",
    "some text that nobody has seen before",
    "12345",
    "ZeroDivisionError: division by zero",
    "Traceback (most recent call last):",
    "CUDA error: an illegal memory access was encountered",
    "Killed",
)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a rule is not acceptable: a name, a sentence, the place, and what to do."""

    name: str
    rule: Rule
    what: str
    place: str
    line: str | None = None
    reached: int | None = None
    wanted: str | None = None
    help: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rule": self.rule.id,
            "what": self.what,
            "place": self.place,
            "line": self.line,
            "help": self.help,
        }


def body_of(line: str) -> bytes:
    """The body of an example line, as rules see it."""
    text = clean(line.encode("utf-8", "surrogateescape").rstrip(b"\r\n"))
    return text[body_start(text) :]


def examine(rules: RuleSet, beside: RuleSet | None = None, on_progress: Callable[[int], None] | None = None) -> list[Objection]:
    """All objections to ``rules``. ``beside`` are further rules (with examples) that they will work together with."""
    found: list[Objection] = []
    sound: list[Rule] = []
    wheel = Wheel()
    with contextlib.suppress(shapes.Unreadable):  # each is examined alone below, which then names the rule
        _analyse(rules)
    for number, rule in enumerate(rules):
        try:
            own = list(_alone(rule, wheel))
        except TimeoutError:
            own = [
                Objection(
                    "expensive",
                    rule,
                    f"searching an example by its pattern or by one of its metrics' takes more than {_SEARCH_S:g} s",
                    rule.place,
                    help="no repeat inside of a repeat that may match the same text",
                )
            ]
        found += own
        if not any(objection.name == "does-not-compile" for objection in own):
            sound.append(rule)
        if on_progress:
            on_progress(number + 1)
    names = {rule.id for rule in rules}
    others = [rule for rule in beside or () if rule.id not in names]
    try:
        found += _together(sound, others)
    except RuleError as error:
        found.append(Objection("does-not-compile", sound[0], str(error), sound[0].place))
    return found


def _analyse(rules: RuleSet) -> None:
    """Analyse the patterns together, as a matcher does: the analysis of the shipped ones comes with the package."""
    shapes.analyse(rule.pattern for rule in rules)
    shapes.analyse(pattern for rule in rules for _, pattern in rule.metrics)


def _hits(database: Any, body: bytes) -> bool:
    """Whether any pattern of a loaded database matches ``body``."""
    found: list[int] = []
    database.scan(body, lambda *hit: found.append(1))
    return bool(found)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule as both engines take it."""

    rule: Rule
    database: Any
    size: int
    took_s: float
    relaxed: Any | None
    """of the pattern without its numbers and glyphs, if that differs"""
    expression: Any
    metrics: dict[str, Any]

    @staticmethod
    def of(rule: Rule, wheel: Wheel) -> _Compiled:
        """Raises Unreadable, regex.error or ValueError if an engine refuses it."""
        import regex

        analysis = shapes.analyse([rule.pattern])[rule.pattern]
        expression = regex.compile(rule.pattern.encode())
        began = time.thread_time()  # processor time, because the rule is not to blame for other work on the machine
        data = compiled(wheel, [pattern_of(rule, 0)])
        took_s = time.thread_time() - began
        relaxed = compiled(wheel, [Pattern(analysis.relaxed, ALLOWEMPTY, 0)]) if analysis.relaxed is not None else None
        metrics = {name: regex.compile(pattern.encode()) for name, pattern in rule.metrics}
        shapes.analyse(pattern for _, pattern in rule.metrics)
        assert data is not None
        loaded = wheel.load(relaxed) if relaxed is not None else None
        return _Compiled(rule, wheel.load(data), len(data), took_s, loaded, expression, metrics)

    def matches(self, body: bytes) -> bool:
        return _hits(self.database, body) and self.expression.search(body, timeout=_SEARCH_S) is not None


def _alone(rule: Rule, wheel: Wheel) -> Iterator[Objection]:
    """The objections to one rule alone. Raises TimeoutError if a search takes too long."""
    import regex

    try:
        made = _Compiled.of(rule, wheel)
    except (shapes.Unreadable, regex.error, ValueError) as error:
        yield Objection(
            "does-not-compile",
            rule,
            f"the pattern is refused: {error}",
            rule.place,
            help="write what Hyperscan, Python's re and regex share; it may not match the empty line",
        )
        return
    if "\0" in rule.pattern or "\n" in rule.pattern:
        yield Objection(
            "does-not-compile",
            rule,
            "the pattern holds a NUL or a line end",
            rule.place,
            help=r"a body never holds one; write \x00 if you must",
        )
        return
    yield from _too_dear(made)
    yield from _without_examples(rule)
    captured: set[str] = set()
    yield from _own_examples(made, captured)
    yield from _own_metrics(made, captured)
    yield from _unknown_groups(made)
    if rule.family == "filters" and not rule.left:  # what is left to folds is not dropped for that rule
        yield from _too_wide(made)


def _too_dear(made: _Compiled) -> Iterator[Objection]:
    """What would slow every line down."""
    rule = made.rule
    if made.relaxed is not None and _hits(made.relaxed, _PLAIN):
        yield Objection(
            "expensive",
            rule,
            "the rule depends on the very numbers or glyphs; without them it could be any line, and each is scanned again",
            rule.place,
            help="give it literal text, or take all digits and all non-ASCII bytes alike",
        )
    if made.took_s > _SLOW_S or made.size > _LARGE_BYTES:
        yield Objection(
            "expensive",
            rule,
            f"the pattern compiles to {made.size >> 10} KiB in {made.took_s:.1f} s",
            rule.place,
            help="avoid large bounded repeats of wide classes",
        )


def _without_examples(rule: Rule) -> Iterator[Objection]:
    if not rule.matches:
        yield Objection(
            "no-match-example",
            rule,
            "the rule shows no line that it matches",
            rule.place,
            help="add examples: matches: with a line as its software prints it",
        )
    if not rule.misses:
        yield Objection(
            "no-miss-example",
            rule,
            "the rule shows no near miss",
            rule.place,
            help="add examples: misses: with a line that almost matches",
        )


def _own_examples(made: _Compiled, captured: set[str]) -> Iterator[Objection]:
    """Whether the examples hold. ``captured`` gets the metrics that they show a number for."""
    rule = made.rule
    for example in rule.matches:
        body = body_of(example.line)
        place = f"{rule.file}:{example.at}"
        if not made.matches(body):
            reached, wanted = how_far(rule.pattern, body)
            yield Objection(
                "misses-own-example",
                rule,
                "example does not match",
                place,
                example.line,
                len(example.line.encode()) - len(body) + reached,
                wanted,
                f"diagnose rules explain --rule {rule.id} 'LINE'",
            )
            continue
        values = _captures(made.expression, made.metrics, body)
        captured |= {name for name, text in values.items() if value_of(text.encode()) is not None}
        yield from _wrong_captures(rule, example, values, place)
    for example in rule.misses:
        if made.matches(body_of(example.line)):
            yield Objection(
                "matches-own-miss",
                rule,
                "a line that must not match does",
                f"{rule.file}:{example.at}",
                example.line,
                help="anchor the pattern, or add what distinguishes the two",
            )


def _own_metrics(made: _Compiled, captured: set[str]) -> Iterator[Objection]:
    """Whether each metric is known, has one group, and is among those ``captured`` from the examples."""
    rule = made.rule
    for name, expression in made.metrics.items():
        if name not in shipped_metrics().quantities:
            yield Objection(
                "unknown-name",
                rule,
                f"the metric {name!r} is not known",
                rule.place,
                help=f"use one of: {' '.join(shipped_metrics().quantities)}",
            )
        elif expression.groups != 1:
            yield Objection(
                "wrong-capture",
                rule,
                f"the metric {name} needs exactly one group",
                rule.place,
                help="make the others (?:…)",
            )
        elif name not in captured:
            yield Objection(
                "wrong-capture",
                rule,
                f"no example shows a number for the metric {name}",
                rule.place,
                help="add an example, or mend the metric's pattern",
            )


def _unknown_groups(made: _Compiled) -> Iterator[Objection]:
    for name in made.expression.groupindex:
        if name not in CAPTURES:
            yield Objection(
                "unknown-name",
                made.rule,
                f"the group {name!r} is not one of the words that docs/rules.md lists",
                made.rule.place,
                help=f"use one of: {' '.join(CAPTURES)}",
            )


def _too_wide(made: _Compiled) -> Iterator[Objection]:
    probe = next((probe for probe in PROBES if made.matches(probe.encode())), None)
    if probe is not None:
        yield Objection(
            "catch-all",
            made.rule,
            "the filter is too wide",
            made.rule.place,
            probe,
            help="anchor it and give it literal text that only this software prints",
        )


def captures_of(rule: Rule, body: bytes) -> dict[str, str]:
    """What ``rule`` captures in ``body``: its named groups and its metrics. Raises TimeoutError if that takes too long."""
    import regex

    metrics = {name: regex.compile(pattern.encode()) for name, pattern in rule.metrics}
    return _captures(regex.compile(rule.pattern.encode()), metrics, body)


def _captures(expression: Any, metrics: dict[str, Any], body: bytes) -> dict[str, str]:
    values: dict[str, str] = {}
    found = expression.search(body, timeout=_SEARCH_S)
    for name, value in (found.groupdict() if found else {}).items():
        if value is not None:
            values[name] = value.decode("utf-8", "replace")
    for name, metric in metrics.items():
        found = metric.search(body, timeout=_SEARCH_S)
        if found and metric.groups and found[1] is not None:
            values[name] = found[1].decode("utf-8", "replace")
    return values


def _wrong_captures(rule: Rule, example: Example, values: dict[str, str], place: str) -> Iterator[Objection]:
    for name, wanted in example.captures:
        got = values.get(name)
        if got != wanted:
            said = "nothing" if got is None else repr(got)
            yield Objection(
                "wrong-capture",
                rule,
                f"{name} should be {wanted!r} and is {said}",
                place,
                example.line,
                help=f"diagnose rules explain --rule {rule.id} 'LINE'",
            )


def how_far(pattern: str, body: bytes) -> tuple[int, str]:
    """(where in ``body`` the longest head of ``pattern`` that compiles and matches ends, the rest of the pattern)."""
    import regex

    latest = time.monotonic() + _HOW_FAR_S
    for end in range(len(pattern) - 1, 0, -1):
        if time.monotonic() > latest:
            break
        try:
            found = regex.search(pattern[:end].encode(), body, timeout=0.2)
        except (regex.error, TimeoutError):
            continue
        if found:
            return found.end(), pattern[end:]
    return 0, pattern


def _together(mine: Sequence[Rule], beside: Sequence[Rule]) -> Iterator[Objection]:
    """What goes wrong if ``mine`` work together with each other and with ``beside``.

    They are compiled separately, and the others as a service has them: so their database comes with the package, or from the
    cache.
    """
    order = {rule.id: number for number, rule in enumerate(RuleSet.of([*mine, *beside]))}
    names = {rule.id for rule in mine}
    own = Matcher(RuleSet.of(mine), "plain")
    others = Matcher(RuleSet.of(beside), "plain", reserved=EARLY)

    def hits_of(body: bytes, *, all_of_them: bool) -> list[Rule]:
        hits = [own.rules[number] for number in own.matches(body)]
        if all_of_them:
            hits += [others.rules[number] for number in others.matches(body)]
        return sorted(hits, key=lambda rule: order[rule.id])

    for rule in (*own.rules, *others.rules[EARLY:]):
        is_mine = rule.id in names
        decided = False
        for example in rule.matches:
            hits = hits_of(body_of(example.line), all_of_them=is_mine)
            decided = decided or (bool(hits) and hits[0] is rule)
            yield from _clashes(rule, example, hits)
        if is_mine and rule.matches and not decided:
            first = hits_of(body_of(rule.matches[0].line), all_of_them=True)
            if first and first[0] is not rule:
                yield Objection(
                    "shadowed",
                    rule,
                    f"every example is decided by {first[0].id}, which comes earlier",
                    rule.place,
                    help=f"move it before {first[0].place}, or remove one of the two",
                )


def _clashes(rule: Rule, example: Example, hits: Sequence[Rule]) -> Iterator[Objection]:
    """Failure rules that match an example of a filter, and filters that match one of a failure rule."""
    if rule.family == "filters":
        # Lines that say that all is well may be regular output; they are kept as evidence of that.
        alarming = next((other for other in hits if other.family == "failures" and other.reason != "healthy"), None)
        if alarming is not None and not rule.left:
            yield Objection(
                "alarms-on-healthy",
                alarming,
                f"the failure rule matches regular output, as {rule.id} shows it",
                f"{rule.file}:{example.at}",
                example.line,
                help="make the failure rule narrower, or drop the example if it is no regular output",
            )
    elif rule.reason != "healthy":
        for other in hits:
            if other.family == "filters" and not other.left:
                yield Objection(
                    "drops-failure-line",
                    other,
                    f"the filter matches failure evidence, as {rule.id} shows it",
                    f"{rule.file}:{example.at}",
                    example.line,
                    help="make the filter narrower",
                )


def advice(rules: Iterable[Rule]) -> Iterator[Objection]:
    """What is not wrong but costs time: rules that keep lines with different numbers from sharing a verdict."""
    for rule in rules:
        why = shapes.sensitivity(rule.pattern)
        if why is not None:
            yield Objection(
                "not-blind",
                rule,
                f"each line that could match is scanned again: {why}",
                rule.place,
                help=r"write \d+ where the very number does not matter",
            )
