"""Rules that were learned at run time: what they must pass, the states they go through, and where they are kept.

proposed -> shadow -> active -> retired. A proposal becomes *shadow* when it passes everything that ``judged`` asks; in shadow
it is counted against lines that it has not seen, and drops nothing; when those counts are clean it becomes *active*. Whoever
wrote it (the miner, a model, a person) makes no difference. A refused proposal is kept as retired, with the reason, so that it
is not proposed again.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from diagnose import shapes
from diagnose.errors import RuleError
from diagnose.matcher import Matcher
from diagnose.rules import Example, Rule, RuleSet, load
from diagnose.verification import body_of, examine

State = Literal["proposed", "shadow", "active", "retired"]
STATES: tuple[State, ...] = ("proposed", "shadow", "active", "retired")

_LONGEST = 2000
_MOST_REPEATS = 1000
_MOST_COPIES = 5000
"""what counted repeats may multiply a pattern to: x{50} inside of {50} is 2,500 copies"""
_COMPILE_S = 3
_MEMORY = 1 << 30
_FEWEST_LETTERS = 4
_FEWEST_LINES = 3
_CLEAN_LINES = 1
"""lines of the shadow that a rule must have matched before it may act"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a proposal may not act: a name and a sentence."""

    name: str
    what: str
    line: str | None = None


@dataclass(slots=True)
class Learned:
    """A learned rule with its history."""

    rule: Rule
    state: State
    provenance: dict[str, Any] = field(default_factory=dict)
    why: str | None = None
    matched: int = 0
    """lines that it matched in shadow"""
    dirty: int = 0
    """of those, lines with evidence of failure"""
    changed: float = 0.0


# --- what a proposal must pass -----------------------------------------------------------------------------------------------


def judged(
    proposals: Sequence[Rule], lines: Mapping[str, Sequence[str]], evidence: Iterable[str] = (), beside: RuleSet | None = None
) -> dict[str, Refusal]:
    """The refusals among ``proposals``, by id. ``lines``: id -> lines it was written for, also such as its author did not see.

    ``evidence``: lines that must never be dropped, such as the kept lines of known failures. ``beside``: the rules at work,
    with examples; by default the shipped ones.
    """
    refused: dict[str, Refusal] = {}
    for rule in proposals:
        if (refusal := _bounds(rule) or _says_enough(rule)) is not None:
            refused[rule.id] = refusal
    left = [rule for rule in proposals if rule.id not in refused]
    for rule, problem in zip(left, _compiled([rule.pattern for rule in left]), strict=True):
        if problem is not None:
            refused[rule.id] = Refusal("expensive", problem)
    shipped = beside if beside is not None else load(examples=True)
    left = [rule for rule in proposals if rule.id not in refused]
    if left:
        mine = {rule.id for rule in left}
        for objection in examine(RuleSet.of(left), shipped):
            if objection.rule.id in mine and objection.name != "shadowed":
                refused.setdefault(objection.rule.id, Refusal(objection.name, objection.what, objection.line))
    must_stay = list(evidence)
    at_work = Matcher(RuleSet.of(shipped), "plain")
    for rule in left:
        if rule.id not in refused and (refusal := _on_lines(rule, lines.get(rule.id, ()), must_stay, at_work)) is not None:
            refused[rule.id] = refusal
    return refused


def _bounds(rule: Rule) -> Refusal | None:
    """What can be told from the text of a pattern, before anything compiles it."""
    if rule.family != "filters":
        return Refusal("not-a-filter", "only filters are learned from regular lines")
    if len(rule.pattern) > _LONGEST:
        return Refusal("expensive", f"the pattern has {len(rule.pattern):,} characters; {_LONGEST:,} are the limit")
    try:
        if shapes.needs_confirmation(rule.pattern):
            return Refusal("expensive", "the pattern looks around or refers back")
        copies = shapes.copies(rule.pattern)
    except shapes.Unreadable as error:
        return Refusal("does-not-compile", str(error))
    if copies > _MOST_COPIES:
        return Refusal("expensive", f"its counted repeats multiply to {copies:,} copies")
    if not rule.pattern.startswith("^"):
        return Refusal("not-anchored", "the pattern does not begin with ^: it could match inside of any line")
    return None


def _says_enough(rule: Rule) -> Refusal | None:
    """A filter must have some literal text, else it could be any line."""
    literal = re.sub(r"\[(?:\\.|[^\]\\])*\]|\\[A-Za-z]|\{[\d,]*\}|\(\?[^)]*", " ", rule.pattern)
    if len(re.findall(r"[A-Za-z]", literal)) < _FEWEST_LETTERS:
        return Refusal("catch-all", "the pattern has hardly any literal text")
    return None


def _on_lines(rule: Rule, lines: Sequence[str], must_stay: Sequence[str], at_work: Matcher) -> Refusal | None:
    """Whether it matches what it was written for, more than one line of it, and nothing that must stay."""
    import regex

    expression = regex.compile(rule.pattern.encode())
    bodies = [body_of(line) for line in lines]
    missed = next((line for line, body in zip(lines, bodies, strict=True) if not expression.search(body, timeout=0.05)), None)
    if missed is not None:
        return Refusal("misses-its-lines", "it does not match all lines that it was written for", missed)
    if len(set(bodies)) < _FEWEST_LINES and len(bodies) < _FEWEST_LINES:
        return Refusal("overfitted", f"it was seen on {len(bodies)} lines only")
    for line, body in zip(lines, bodies, strict=True):
        known = [at_work.rules[number] for number in at_work.matches(body)]
        if any(other.family == "failures" and other.reason != "healthy" for other in known):
            return Refusal("drops-evidence", "a failure rule knows a line that it was written for", line)
    for line in must_stay:
        if expression.search(body_of(line), timeout=0.05):
            return Refusal("drops-evidence", "it matches a line that must stay", line)
    return None


_CHILD = """
import json, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
from diagnose.databases import Pattern, Wheel, SINGLEMATCH
from diagnose import shapes
wheel = Wheel()
for pattern in json.load(sys.stdin):
    signal.alarm(int(sys.argv[2]))
    try:
        wheel.compile([Pattern(pattern, SINGLEMATCH, 0)])
        wheel.compile([Pattern(shapes.relaxed(pattern), SINGLEMATCH | 16, 0)])
        print("ok", flush=True)
    except MemoryError:
        print("it takes too much memory to compile", flush=True)
    except Exception as error:
        print("refused: " + str(error).replace("\\n", " ")[:200], flush=True)
"""


def _compiled(patterns: list[str]) -> list[str | None]:
    """What is wrong with compiling each pattern, found out by a child that may die of it."""
    found: list[str | None] = []
    while len(found) < len(patterns):
        done = subprocess.run(  # noqa: S603 - our own interpreter; the patterns go in as data
            [sys.executable, "-c", _CHILD, str(_MEMORY), str(_COMPILE_S)],
            input=json.dumps(patterns[len(found) :]),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = done.stdout.splitlines()
        found += [None if answer == "ok" else answer for answer in answers]
        if done.returncode and len(found) < len(patterns):
            if not answers and "ModuleNotFoundError" in done.stderr:
                raise RuleError("patterns cannot be tried", where="learned", remedy=done.stderr.strip().splitlines()[-1])
            found.append(f"it takes more than {_COMPILE_S} s or {_MEMORY >> 20} MiB to compile")
    return found


# --- where they are kept ----------------------------------------------------------------------------------------------------


_TABLE = """
create table if not exists rules (
    id text primary key, pattern text not null unique, state text not null, kind text, title text, framework text,
    metrics text not null, matches text not null, misses text not null, provenance text not null, why text,
    matched integer not null default 0, dirty integer not null default 0, created real not null, changed real not null
)
"""


class Book:
    """The learned rules, in one SQLite file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=10)
            self._base.execute("pragma journal_mode = wal")
            self._base.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise RuleError(f"cannot be opened: {error}", where=str(path), remedy="give a file that can be written") from None

    def add(self, rule: Rule, state: State, provenance: Mapping[str, Any], why: str | None = None) -> bool:
        """Enter a rule; False if its pattern is known already."""
        now = time.time()
        with self._base:
            done = self._base.execute(
                "insert or ignore into rules values (?,?,?,?,?,?,?,?,?,?,?,0,0,?,?)",
                (
                    rule.id,
                    rule.pattern,
                    state,
                    rule.kind,
                    rule.title,
                    rule.framework,
                    json.dumps(rule.metrics),
                    json.dumps([example.line for example in rule.matches]),
                    json.dumps([example.line for example in rule.misses]),
                    json.dumps(dict(provenance)),
                    why,
                    now,
                    now,
                ),
            )
        return done.rowcount > 0

    def count(self, rule_id: str, matched: int, dirty: int) -> None:
        """Lines that a rule matched in shadow, and how many of them had evidence of failure."""
        with self._base:
            self._base.execute(
                "update rules set matched = matched + ?, dirty = dirty + ? where id = ?", (matched, dirty, rule_id)
            )

    def move(self, rule_id: str, state: State, why: str | None = None) -> Learned:
        """Put a rule into another state."""
        known = self.find(rule_id)
        if known is None:
            raise RuleError(
                f"there is no learned rule {rule_id!r}", where=str(self.path), remedy="diagnose rules list --learned"
            )
        if state == "active" and known.dirty:
            raise RuleError(
                f"it matched {known.dirty} lines with evidence of failure in shadow", where=rule_id, remedy="retire it instead"
            )
        with self._base:
            self._base.execute(
                "update rules set state = ?, why = ?, changed = ? where id = ?", (state, why, time.time(), rule_id)
            )
        return replace(known, state=state, why=why)

    def settle(self) -> list[Learned]:
        """Shadow rules whose counts are clean become active, those that met evidence are retired; these are returned."""
        moved = []
        for known in self.rules("shadow"):
            if known.dirty:
                moved.append(self.move(known.rule.id, "retired", f"met {known.dirty} lines with evidence of failure in shadow"))
            elif known.matched >= _CLEAN_LINES:
                moved.append(self.move(known.rule.id, "active", f"clean on {known.matched} lines in shadow"))
        return moved

    def find(self, rule_id: str) -> Learned | None:
        return next(iter(self._select("where id = ?", (rule_id,))), None)

    def rules(self, *states: State) -> list[Learned]:
        """The rules in these states, oldest first."""
        marks = ",".join("?" * len(states))
        return (
            self._select(f"where state in ({marks}) order by created, id", states)
            if states
            else self._select("order by created, id")
        )

    def knows(self, pattern: str) -> bool:
        return bool(self._select("where pattern = ?", (pattern,)))

    def close(self) -> None:
        self._base.close()

    def _select(self, clause: str, values: Sequence[Any] = ()) -> list[Learned]:
        columns = (
            "id, pattern, state, kind, title, framework, metrics, matches, misses, provenance, why, matched, dirty, changed"
        )
        rows = self._base.execute(f"select {columns} from rules {clause}", tuple(values))  # noqa: S608 - clauses are ours
        return [_of_row(row) for row in rows]


def _of_row(row: Sequence[Any]) -> Learned:
    rule_id, pattern, state, kind, title, framework, metrics, matches, misses, provenance, why, matched, dirty, changed = row
    rule = Rule(
        id=rule_id,
        family="filters",
        pattern=pattern,
        file="learned",
        title=title or "",
        kind=kind,
        framework=framework,
        metrics=tuple((name, expression) for name, expression in json.loads(metrics)),
        matches=tuple(Example(line) for line in json.loads(matches)),
        misses=tuple(Example(line) for line in json.loads(misses)),
    )
    return Learned(rule, state, json.loads(provenance), why, matched, dirty, changed)


def exported(rules: Sequence[Learned]) -> str:
    """The rules as a file for ``rules/filters/``, for review and merging."""
    import yaml

    entries = [
        {
            "id": known.rule.id,
            "title": known.rule.title,
            "kind": known.rule.kind,
            "pattern": known.rule.pattern,
            **({"metrics": dict(known.rule.metrics)} if known.rule.metrics else {}),
            "examples": {
                "matches": [example.line for example in known.rule.matches],
                "misses": [example.line for example in known.rule.misses],
            },
        }
        for known in rules
    ]
    head = {"framework": "learned", "printed_by": "unknown: learned from logs", "rules": entries}
    return str(yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=10_000))
