"""Rules -> a verdict on every segment, by Hyperscan and ``regex``.

A verdict is the number of the rule that decides: **failure beats filter beats unknown**, and within a family the earlier rule
wins. Four engines give the same verdicts:

========== =====================================================================================================
core       the native core with the machine's libhs: a cache of verdicts by shape in front of Hyperscan, no GIL
core+wheel the native core; without a libhs it asks the ``hyperscan`` package about new shapes
wheel      no compiler needed: the same cache in Python around the ``hyperscan`` package
plain      one scan per segment and no cache: the definition that the others are tested against
========== =====================================================================================================

Some rules can tell two lines of one shape apart (``shapes.sensitivity``). They are not in the caches: each line of a shape that
they could match is scanned for them again.

``Matcher.add`` makes a rule live at once, in a small second database. ``Matcher.absorb`` compiles everything into one database
in the background, and the next block uses it. A rule keeps its number for the life of the matcher.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching import shapes
from diagnose.matching.databases import Databases, Libhs, Library, Pattern, Wheel, books, came_ready, compiled, core, libhs
from diagnose.matching.engines import ENGINES, PlainEngine
from diagnose.matching.scan import KEPT, Cursor, Kept, Scan
from diagnose.matching.series import UNITS
from diagnose.reading.lines import Block

EngineName = Literal["core", "core+wheel", "wheel", "plain"]
EARLY = 256
"""numbers that are always reserved when jobs are read with the shipped rules, even if they are not used

A rule's number is part of the database. So all these matchers find the databases that are compiled when the package is built
(see ``diagnose.ready``).
"""
CONFIRM_S = 0.05
"""so many seconds may ``regex`` spend on one line; then a rule that Hyperscan cannot hold is undecided"""
_SHORT = 1024
"""bytes of a line that an expression from a file is searched in without a limit of time"""
_DIGITS = re.compile(rb"[0-9]+")
_RESERVED = [Rule(f"reserved-{number}", "failures", "reserved") for number in range(EARLY)]


def best_engine() -> EngineName:
    """The fastest engine of this installation. ``DIAGNOSE_ENGINE`` overrides it."""
    named = os.environ.get("DIAGNOSE_ENGINE")
    if named:
        if named not in ENGINES:
            raise RuleError(
                f"DIAGNOSE_ENGINE={named} is not an engine", remedy=f"use one of: {', '.join(ENGINES)}, or unset it"
            )
        return named  # type: ignore[return-value]
    if core is None:
        return "wheel"
    return "core" if libhs() else "core+wheel"


def engine_text(engine: EngineName) -> str:
    """The engine for people: which one is in use, and what would be faster."""
    if engine == "core":
        return f"engine: core with libhs {libhs()}"
    if engine == "core+wheel":
        return "engine: core+wheel; faster with a libhs.so.5 (Debian: libhyperscan5)"
    return f"engine: {engine}" + ("; faster when built with a C compiler" if core is None else "")


class _Search:
    """Searches a line for a number, and gives up after ``CONFIRM_S``.

    ``re`` is eight times as fast, and knows no time. So it gets the short lines of expressions that come from a file.
    """

    def __init__(self, pattern: bytes, *, trusted: bool) -> None:
        self._pattern = pattern
        self._quick = re.compile(pattern).search if trusted else None

    def __call__(self, body: bytes) -> Any:
        """The match. Raises TimeoutError."""
        if self._quick is not None and len(body) <= _SHORT:
            return self._quick(body)
        return self._limited(body, timeout=CONFIRM_S)

    @functools.cached_property
    def _limited(self) -> Any:
        import regex

        return regex.compile(self._pattern).search


class Matcher:
    """Judges blocks. Only one thread may use a matcher at a time. Each source has a Cursor, and sources may share a matcher."""

    def __init__(self, rules: RuleSet, engine: EngineName | None = None, *, reserved: int = 0) -> None:
        """``reserved``: so many failure rules that are added later come before all of these. Any others come last."""
        self.engine: EngineName = engine or best_engine()
        if self.engine not in ENGINES:
            raise RuleError(f"{self.engine} is not an engine", remedy=f"use one of: {', '.join(ENGINES)}")
        self.rules: list[Rule] = [*_RESERVED[:reserved], *rules]
        self.series: list[str] = ["step"]
        self.actions = _actions(self.rules)
        self.failures = _failures(self.rules)
        self._lock = threading.Lock()
        self._next: Databases | None = None
        self._gone: set[int] = set(range(reserved))
        self._free = list(reversed(range(reserved)))
        self._absorptions = 0
        self._placed: set[int] = set()
        """reserved numbers that are in use and not in the base yet"""
        self._metric_patterns: dict[int, list[tuple[int, float, Any]]] = {}
        self._steady: dict[int, bool] = {}
        self._by_hand: set[int] = set()
        """metric rules whose numbers may be anywhere in the line: see ``fields``"""
        self._confirmations: dict[int, Any] = {}
        shapes.analyse(pattern for rule in self.rules for _, pattern in rule.metrics)  # all at once: see fields
        self._library: Library = Libhs() if self.engine == "core" else Wheel()
        self._databases = Databases(self._compile(list(enumerate(self.rules))), self._compile([]), len(self.rules))
        self._engine = ENGINES[self.engine](self)
        self._engine.use(self._databases)

    @property
    def came_ready(self) -> bool:
        """Whether its rules came compiled with the package."""
        return all(came_ready(self._library, group) for group in self._groups(list(enumerate(self.rules)), self._gone))

    @property
    def library(self) -> str:
        """The build of Hyperscan in use."""
        return self._library.name

    def scan(self, block: Block, cursor: Cursor) -> Scan:
        """The verdicts on ``block``. Rules that were added since the last block count from here on."""
        waiting = self._next
        if waiting is not None:
            with self._lock:
                waiting, self._next = self._next, None
            assert waiting is not None
            self._databases = waiting
            self._engine.use(waiting)
        result = self._engine.scan(block.data, cursor)
        if block.cut and result.kept:
            first = Kept._make(KEPT.unpack_from(result.kept))
            first = first._replace(cut=min(first.cut + block.cut, 0xFFFFFFFF))
            result.kept = KEPT.pack(*first) + result.kept[KEPT.size :]
        return result

    def add(self, rules: Sequence[Rule], resting: Collection[str] = ()) -> None:
        """Make ``rules`` live from the next block on. They are compiled alone, in milliseconds. Any thread may call this.

        Rules whose ids are in ``resting`` only get their numbers, until ``wake``. So matchers of jobs with different rules
        number them alike.
        """
        with self._lock:
            current = self._next or self._databases
            taken = {rule.id for rule in self.rules}
            for rule in rules:
                if rule.id in taken:
                    raise RuleError(f"the rule id {rule.id!r} is in use", where=rule.place, remedy="choose another id")
            early = [rule for rule in rules if rule.family == "failures"][: len(self._free)]
            places = {self._free[-1 - count]: rule for count, rule in enumerate(early)}
            late = [rule for rule in rules if not any(rule is other for other in early)]
            together = [*(places.get(number, rule) for number, rule in enumerate(self.rules)), *late]
            idle = {number for number, rule in enumerate(together) if rule.id in resting}
            new = {*places, *range(len(self.rules), len(together))}
            awake = [
                (number, rule)
                for number, rule in enumerate(together)
                if number not in idle and (number in new or self._in_delta(number, current))
            ]
            delta = self._compile(awake, self._gone - new)
            del self._free[len(self._free) - len(places) :]
            self._placed |= places.keys()
            self._gone = (self._gone - new) | (idle & new)
            self.rules[:] = together
            self.actions, self.failures = _actions(self.rules), _failures(self.rules)
            self._next = Databases(current.base, delta, current.absorbed)

    def retire(self, rule_ids: Iterable[str]) -> None:
        """Take rules out of use. They keep their numbers. The base is compiled again without them, in the background."""
        with self._lock:
            wanted = set(rule_ids)
            self._gone |= {number for number, rule in enumerate(self.rules) if rule.id in wanted}
            current = self._next or self._databases
            self._next = Databases(current.base, self._delta(current), current.absorbed)
        if any(not self._in_delta(number, current) and not self._unused(number) for number in self._gone):
            self.absorb()

    def wake(self, rule_ids: Iterable[str]) -> None:
        """Use rules again that rested or were retired."""
        with self._lock:
            wanted = set(rule_ids)
            back = {number for number in self._gone if self.rules[number].id in wanted}
            self._gone -= back
            current = self._next or self._databases
            self._next = Databases(current.base, self._delta(current), current.absorbed)
        if any(not self._in_delta(number, current) for number in back):
            self.absorb()

    def absorb(self) -> threading.Thread:
        """Compile base and additions into one database in the background. The next block after that uses it."""
        with self._lock:
            self._absorptions += 1
            number = self._absorptions

        def work() -> None:
            while True:
                with self._lock:
                    rules, placed, gone = list(self.rules), set(self._placed), set(self._gone)
                base = self._compile(list(enumerate(rules)), gone)
                with self._lock:
                    if number != self._absorptions:
                        return  # a thread that began later knows more
                    # Retired or woken while this compiled: if such a rule was added since, the delta has it.
                    since = {*range(len(rules), len(self.rules)), *(self._placed - placed)}
                    if (gone ^ self._gone) - since:
                        continue
                    self._placed -= placed
                    made = Databases(base, (), len(rules))
                    self._next = Databases(base, self._delta(made), len(rules))
                    return

        thread = threading.Thread(target=work, name="absorb-rules", daemon=True)
        thread.start()
        return thread

    def _in_delta(self, number: int, databases: Databases) -> bool:
        return number >= databases.absorbed or number in self._placed

    def _unused(self, number: int) -> bool:
        return number in self._free

    def _delta(self, databases: Databases) -> tuple[bytes | None, ...]:
        """Compile the small database of the rules that the base lacks."""
        return self._compile([pair for pair in enumerate(self.rules) if self._in_delta(pair[0], databases)])

    def judge(self, body: bytes) -> int:
        """The rule that decides about one body, by the plain scan."""
        return self._plain.judge(body)

    def matches(self, body: bytes) -> list[int]:
        """All rules that match ``body``, in order of precedence."""
        return [number for number in self._plain.candidates(body) if self.confirms(number, body)]

    def confirms(self, number: int, body: bytes) -> bool:
        """Whether a rule that Hyperscan hit really matches. If time runs out, a failure rule matches, a filter does not."""
        if number not in self._confirmations:
            pattern = self.rules[number].pattern
            if shapes.analyse([pattern])[pattern].confirmed:
                import regex

                self._confirmations[number] = regex.compile(pattern.encode())
            else:
                self._confirmations[number] = None
        expression = self._confirmations[number]
        if expression is None:
            return True
        try:
            return expression.search(body, timeout=CONFIRM_S) is not None
        except TimeoutError:
            return self.rules[number].family == "failures"

    def key(self, number: int) -> tuple[int, int]:
        """Order of precedence."""
        return ("FDLY".index(self.actions[number].replace("M", "D")), number)

    def captures(self, number: int, body: bytes) -> list[tuple[int, float, int, int]]:
        """What the metric rule ``number`` captures in ``body``: (series, scale, start, end)."""
        result = []
        for series, scale, search in self._metrics_of(number):
            try:
                found = search(body)
            except TimeoutError:
                continue
            if found is not None and (span := found.span(1))[0] >= 0:
                result.append((series, scale, *span))
        return result

    def _metrics_of(self, number: int) -> list[tuple[int, float, Any]]:
        """(series, scale, search) of each metric of the rule."""
        if number not in self._metric_patterns:
            rule = self.rules[number]
            entries = []
            for name, pattern in rule.metrics:
                name, scale = UNITS.get(name, (name, 1.0))
                if name not in self.series:
                    self.series.append(name)
                entries.append((self.series.index(name), scale, _Search(pattern.encode(), trusted=bool(rule.file))))
            self._metric_patterns[number] = entries
        return self._metric_patterns[number]

    def fields(self, number: int, body: bytes) -> bytes | None:
        """Where the numbers stand in all bodies with the shape of ``body``, packed. None: ``captures`` must be asked per line.

        The expressions may not prove that the numbers stand in the same places for the whole shape (``shapes.steady``). Then
        this is checked on two more bodies of the shape, with runs of one digit and of three: a capture that depends on the
        length of a number moves.
        """
        steady = self._steady.get(number)
        if steady is None:
            patterns = [pattern for _, pattern in self.rules[number].metrics]
            known = shapes.analyse(patterns)
            steady = self._steady[number] = all(known[pattern].steady for pattern in patterns)
            if not steady and any(known[pattern].sensitivity for pattern in patterns):
                self._by_hand.add(number)
        if number in self._by_hand:
            return None
        bodies = [body] if steady else [body, *(_DIGITS.sub(digits, body) for digits in (b"7", b"777"))]
        found: set[bytes | None] = {core.readings(one, self.captures(number, one)) for one in bodies}
        return found.pop() if len(found) == 1 else None

    def _compile(self, numbered: list[tuple[int, Rule]], gone: Collection[int] | None = None) -> tuple[bytes | None, ...]:
        left_out = self._gone if gone is None else gone
        try:
            return tuple(compiled(self._library, group) for group in self._groups(numbered, left_out))
        except (ValueError, shapes.Unreadable) as error:
            raise self._culprit(numbered, str(error)) from None

    def _groups(self, numbered: Sequence[tuple[int, Rule]], left_out: Collection[int]) -> tuple[list[Pattern], ...]:
        """What is compiled into a database of its own each."""
        groups = books(pair for pair in numbered if pair[0] not in left_out)
        return ([*groups.blind, *groups.relaxed], groups.sensitive) if self.engine == "core" else (groups.together,)

    def _culprit(self, numbered: list[tuple[int, Rule]], message: str) -> RuleError:
        for number, rule in numbered:
            try:
                for group in books([(number, rule)]):
                    if group:
                        self._library.compile(group)
            except (ValueError, shapes.Unreadable) as error:
                return RuleError(
                    f"the pattern cannot be compiled: {error}",
                    where=f"{rule.place} {rule.id}",
                    remedy="see diagnose rules check",
                )
        return RuleError(f"Hyperscan refuses the rules together: {message}", remedy="remove the latest rules")

    @property
    def _plain(self) -> PlainEngine:
        if isinstance(self._engine, PlainEngine):
            return self._engine
        if self._own_plain is None or self._own_plain[0] is not self._databases:
            wheel = Wheel()
            engine = PlainEngine(self, wheel)
            at_work = [pair for pair in enumerate(self.rules) if pair[0] not in self._gone]
            added = [pair for pair in at_work if self._in_delta(pair[0], self._databases)]
            base = [pair for pair in at_work if not self._in_delta(pair[0], self._databases)]
            parts = [compiled(wheel, books(part).together) for part in (base, added)]
            engine.use(Databases((parts[0],), (parts[1],), len(base)))
            self._own_plain = (self._databases, engine)
        return self._own_plain[1]

    _own_plain: tuple[Databases, PlainEngine] | None = None


def _actions(rules: Iterable[Rule]) -> str:
    """One letter per rule for its segments: F kept (facts only for now), D dropped, M dropped and its numbers read, L left to
    folds as if no rule knew it, Y dropped unless it is left to folds.
    """
    return "".join(map(_action, rules))


def _failures(rules: Iterable[Rule]) -> frozenset[int]:
    """The numbers of the rules whose lines say that something failed: those of warnings are not among them."""
    return frozenset(number for number, rule in enumerate(rules) if rule.family == "failures" and rule.severity != "warning")


def _action(rule: Rule) -> str:
    if rule.family == "failures" or rule.facts:
        return "F"
    return "L" if rule.left else "Y" if rule.yields else "M" if rule.metrics else "D"


def unusable(rules: Sequence[Rule], engine: EngineName | None = None) -> dict[str, str]:
    """id -> why the rule does not compile here. It may have been learned with another build of Hyperscan."""

    def problem(tried: Sequence[Rule]) -> str | None:
        try:
            Matcher(RuleSet.of(tried), engine)
        except (RuleError, shapes.Unreadable) as error:
            return str(error)
        return None

    if (why := problem(rules)) is None:
        return {}
    found = {rule.id: its for rule in rules if (its := problem([rule])) is not None}
    return found or dict.fromkeys((rule.id for rule in rules), why)
