"""Rules that were learned at run time: the states they go through, what they must pass, and what keeps them.

proposed -> shadow -> active -> retired, for both families, filters and failures:

- *proposed*: entered before anything judges it, with the lines it was written for, so that a crash loses nothing;
- *shadow*: it passed everything that ``judged`` asks. It is counted against lines that it has not seen, and does nothing;
- *active*: those counts are clean. At first it acts for the workloads that it was learned from (``fingerprint``);
- *retired*: refused, met what speaks against it, not matched for long, or by hand. It is kept, with the reason, so that it is
  not proposed again.

Whoever wrote it (the miner, a model, a person) makes no difference. What state follows from which counts is decided by pure
functions; ``Book`` says what a store must offer, so SQLite (``book``) and a service's database keep rules by one logic.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from diagnose.compression.workload import Fingerprint, nearest
from diagnose.errors import RuleError
from diagnose.knowledge.rules import Example, Family, Rule, RuleSet, load
from diagnose.matching import shapes
from diagnose.matching.matcher import Matcher, unusable
from diagnose.verification.rules import body_of, examine

log = logging.getLogger("diagnose.learned")

State = Literal["proposed", "shadow", "active", "retired"]
STATES: tuple[State, ...] = ("proposed", "shadow", "active", "retired")
Scope = Literal["workloads", "global"]
"""who a rule acts for: the workloads that it was learned from, or every job"""

CLEAN_LINES = 1
"""lines that a filter must have matched in shadow before it may act"""
CLEAN_JOBS = 3
"""jobs that went well that a failure rule must have kept silent on in shadow before it may act"""
WIDE = 3
"""workloads in which a filter must have been clean before it acts for all"""
ROT_S = 180 * 86_400.0
"""a rule that matched nothing for so long is retired"""

_LONGEST = 2000
_MOST_COPIES = 5000
"""what counted repeats may multiply a pattern to: x{50} inside of {50} is 2,500 copies"""
_COMPILE_S = 3
_MEMORY = 1 << 30
_SEARCH_S = 0.1
_FEWEST_LETTERS = 4
_FEWEST_LINES = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a proposal may not act: a name and a sentence."""

    name: str
    what: str
    line: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What a rule met."""

    matched: int = 0
    """lines"""
    dirty: int = 0
    """of those, lines that speak against it: for a filter evidence of failure, for a failure rule a run that went well"""
    jobs: int = 0
    """that it was held against, whether it matched or not"""
    last: float | None = None
    """when it last matched, in seconds since 1970"""

    def __add__(self, other: Counts) -> Counts:
        last = max((at for at in (self.last, other.last) if at is not None), default=None)
        return Counts(self.matched + other.matched, self.dirty + other.dirty, self.jobs + other.jobs, last)


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned rule with its history."""

    rule: Rule
    state: State
    scope: Scope = "workloads"
    provenance: dict[str, Any] = field(default_factory=dict)
    """who wrote it: by (miner, model, person), model, prompt, version, votes, segment, job"""
    why: str | None = None
    """of its state"""
    lines: tuple[str, ...] = ()
    """while proposed: lines it was written for, also such as its author did not see"""
    workloads: dict[str, Counts] = field(default_factory=dict)
    """what it met, by workload; "" where that is not known"""
    created: float = 0.0
    changed: float = 0.0

    @property
    def counts(self) -> Counts:
        """What it met in all workloads."""
        return sum(self.workloads.values(), Counts())

    @property
    def matched(self) -> int:
        return self.counts.matched

    @property
    def dirty(self) -> int:
        return self.counts.dirty

    def acts_for(self, workload: str | None) -> bool:
        """Whether it acts for jobs of ``workload``; None: for a job that nothing is known of."""
        return self.state == "active" and (self.scope == "global" or (workload is not None and workload in self.workloads))


# --- the life of a rule -----------------------------------------------------------------------------------------------------


def followed(known: Learned, now: float) -> Learned:
    """``known`` as its counts want it at the time ``now``: the same where nothing changes."""
    counts = known.counts
    if known.state not in ("shadow", "active"):
        return known
    if counts.dirty:
        return _moved(known, "retired", f"met {counts.dirty} {_against(known.rule)} in {known.state}", now)
    if known.state == "shadow":
        if known.rule.family == "filters" and counts.matched >= CLEAN_LINES:
            return _moved(known, "active", f"clean on {counts.matched} lines in shadow", now)
        if known.rule.family == "failures" and counts.jobs >= CLEAN_JOBS:
            return _moved(known, "active", f"silent on {counts.jobs} jobs that went well, in shadow", now)
        return known
    seen = max(known.changed, counts.last or 0.0)
    if now - seen > ROT_S:
        return _moved(known, "retired", f"rotten: matched nothing for {(now - seen) / 86_400:.0f} days", now)
    clean = sum(1 for name, one in known.workloads.items() if name and one.matched)
    if known.scope == "workloads" and clean >= WIDE:
        return replace(known, scope="global", why=f"clean in {clean} workloads", changed=now)
    return known


def moved(known: Learned, state: State, why: str | None, now: float) -> Learned:
    """``known`` put into another state by somebody's word; an error where that may not be."""
    if state == "active" and known.dirty:
        raise RuleError(
            f"it met {known.dirty} {_against(known.rule)} in shadow", where=known.rule.id, remedy="retire it instead"
        )
    return _moved(known, state, why, now)


def promoted(known: Learned, why: str, now: float) -> Learned:
    """``known`` active, for every job."""
    return replace(moved(known, "active", why, now), scope="global")


def _moved(known: Learned, state: State, why: str | None, now: float) -> Learned:
    return replace(known, state=state, why=why, changed=now, lines=known.lines if state == "proposed" else ())


def _against(rule: Rule) -> str:
    return "lines with evidence of failure" if rule.family == "filters" else "lines of runs that went well"


# --- what keeps them --------------------------------------------------------------------------------------------------------


class Book(Protocol):
    """A store of learned rules. It decides nothing."""

    def add(self, known: Learned) -> bool:
        """Enter a rule; False if its id, or its pattern in its family, is known already."""

    def write(self, known: Learned, was: State) -> bool:
        """Store state, scope, why and lines of ``known``; False if it is no longer in the state ``was``."""

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        """Add to what a rule met in a workload."""

    def find(self, rule_id: str) -> Learned | None: ...

    def known(self, pattern: str, family: Family) -> Learned | None:
        """The rule with this pattern."""

    def rules(self, *states: State, family: Family | None = None) -> list[Learned]:
        """The rules in these states (none named: in any), oldest first."""

    def workloads(self) -> dict[str, Fingerprint]:
        """The kinds of jobs that rules were learned from, by name."""

    def enrol(self, name: str, fingerprint: Fingerprint) -> None:
        """Enter a workload."""


def workload_of(job: Fingerprint, book: Book) -> str:
    """The workload that a job belongs to; a new one is entered."""
    name = nearest(job, book.workloads())
    if name is None:
        name = str(job)
        book.enrol(name, job)
    return name


def settle(book: Book, now: float) -> list[Learned]:
    """Every rule goes where its counts want it; those that changed are returned."""
    changed = []
    for known in book.rules("shadow", "active"):
        after = followed(known, now)
        if after is not known and book.write(after, known.state):
            changed.append(after)
    return changed


def move(
    book: Book,
    rule_id: str,
    state: State,
    why: str,
    now: float,
    *,
    everywhere: bool = False,
    evidence: Iterable[str] = (),
) -> Learned:
    """Put a rule into another state by somebody's word; ``everywhere``: active for all jobs.

    Nobody's word lets a rule act that has not passed the door. ``evidence``: lines that no filter may drop.
    """
    known = book.find(rule_id)
    if known is None:
        raise RuleError(f"there is no learned rule {rule_id!r}", remedy="diagnose rules learned shows them all")
    after = promoted(known, why, now) if everywhere else moved(known, state, why, now)
    if state == "active" and (refusal := _not_let_in(known, book, evidence)) is not None:
        raise RuleError(
            f"it may not act: {refusal.name}: {refusal.what}",
            where=rule_id,
            remedy="mend it in a rule file; docs/learning.md says what a rule must pass",
        )
    if not book.write(after, known.state):
        raise RuleError("it has just changed its state", where=rule_id, remedy="look at it again: diagnose rules learned")
    return after


def _not_let_in(known: Learned, book: Book, evidence: Iterable[str]) -> Refusal | None:
    """Why a rule may not act. One in shadow or at work has passed the door, if perhaps on a machine with another Hyperscan."""
    rule = known.rule
    if known.state in ("shadow", "active"):
        return next((Refusal("does-not-compile", problem) for problem in unusable([rule], "plain").values()), None)
    # Of its lines only examples may be left. How many there were was asked, and is for the person to say.
    lines = [*known.lines, *(example.line for example in rule.matches)] * _FEWEST_LINES
    failures = [other.rule for other in book.rules(family="failures") if other.rule.id != rule.id]
    return judged([rule], {rule.id: lines}, evidence, failures=failures).get(rule.id)


def usable(known: Sequence[Learned]) -> list[Learned]:
    """Those that compile here: another build of Hyperscan may have learned them. What does not is said, and does nothing."""
    broken = unusable([one.rule for one in known], "plain")
    for name, why in broken.items():
        log.warning("the learned rule %s does nothing here: %s", name, why)
    return [one for one in known if one.rule.id not in broken]


def as_dict(rule: Rule) -> dict[str, Any]:
    """A rule as JSON can hold it, for a store."""
    return {name: value for name, value in asdict(rule).items() if name not in ("id", "family", "pattern", "at")}


def of_dict(rule_id: str, family: Family, pattern: str, fields: Mapping[str, Any]) -> Rule:
    """The rule that ``as_dict`` made ``fields`` of. What a later version added is left out."""
    known = {name: value for name, value in fields.items() if name in Rule.__dataclass_fields__}
    known["metrics"] = tuple((name, expression) for name, expression in known.get("metrics", ()))
    for key in ("matches", "misses"):
        known[key] = tuple(
            Example(one["line"], one["at"], tuple((name, value) for name, value in one["captures"]))
            for one in known.get(key, ())
        )
    return Rule(**{**known, "id": rule_id, "family": family, "pattern": pattern})


def exported(rules: Sequence[Learned]) -> str:
    """Rules of one family as a file for ``rules/filters/`` or ``rules/failures/``, for review and merging."""
    import yaml

    entries = []
    for known in rules:
        rule = known.rule
        own: dict[str, Any] = {"kind": rule.kind} if rule.family == "filters" else {"reason": rule.reason, "layer": rule.layer}
        if rule.family == "failures":
            own |= {"severity": rule.severity} | ({"symptom": "true"} if rule.symptom else {})
            own |= {name: value for name in ("action", "mitigation") if (value := getattr(rule, name))}
        own |= {"reference": rule.reference} if rule.reference else {}
        entries.append(
            {
                "id": rule.id,
                "title": rule.title,
                **own,
                "pattern": rule.pattern,
                **({"metrics": dict(rule.metrics)} if rule.metrics else {}),
                "examples": {
                    "matches": [example.line for example in rule.matches],
                    "misses": [example.line for example in rule.misses],
                },
            }
        )
    filters = not rules or rules[0].rule.family == "filters"
    head = {**({"framework": "learned"} if filters else {}), "printed_by": "unknown: learned from logs", "rules": entries}
    return str(yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=10_000))


# --- what a proposal must pass -----------------------------------------------------------------------------------------------


def judged(
    proposals: Sequence[Rule],
    lines: Mapping[str, Sequence[str]],
    evidence: Iterable[str] = (),
    beside: RuleSet | None = None,
    healthy: Iterable[str] = (),
    failures: Sequence[Rule] = (),
) -> dict[str, Refusal]:
    """The refusals among ``proposals``, by id. ``lines``: id -> lines it was written for, also such as its author did not see.

    ``evidence``: lines that no filter may drop, such as the kept lines of known failures. ``healthy``: lines that no failure
    rule may match, such as the kept lines of runs that went well. ``beside``: the rules at work, with examples; by default
    the shipped ones. ``failures``: learned failure rules, whatever their state: no filter may drop what they were made of.
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
        Matcher(RuleSet.of(shipped), "plain"),
        Matcher(RuleSet.of(rule for rule in failures if rule.id not in broken), "plain"),
    ]
    for rule in left:
        if rule.id not in refused:
            refusal = _on_lines(rule, lines.get(rule.id, ()), against[rule.family], alarms)
            if refusal is not None:
                refused[rule.id] = refusal
    return refused


def _bounds(rule: Rule) -> Refusal | None:
    """What can be told from the text of a pattern, before anything compiles it."""
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
    return None


def _on_lines(rule: Rule, lines: Sequence[str], against: Sequence[str], alarms: Sequence[Matcher]) -> Refusal | None:
    """Whether it matches what it was written for, a filter more than one line of it, and nothing that speaks against it."""
    import regex

    expression = regex.compile(rule.pattern.encode())
    bodies = [body_of(line) for line in lines]
    for line, body in zip(lines, bodies, strict=True):
        if not expression.search(body):
            return Refusal("misses-its-lines", "it does not match all lines that it was written for", line)
    if rule.family == "filters":
        if len(set(bodies)) < _FEWEST_LINES and len(bodies) < _FEWEST_LINES:
            return Refusal("overfitted", f"it was seen on {len(bodies)} lines only")
        for line, body in zip(lines, bodies, strict=True):
            known = [matcher.rules[number] for matcher in alarms for number in matcher.matches(body)]
            if any(other.family == "failures" and other.reason != "healthy" for other in known):
                return Refusal("drops-evidence", "a failure rule knows a line that it was written for", line)
    name, what = {
        "filters": ("drops-evidence", "it matches a line that must stay"),
        "failures": ("alarms-on-healthy", "it matches a line of a run that went well"),
    }[rule.family]
    for line in against:
        try:
            if expression.search(body_of(line), timeout=_SEARCH_S):
                return Refusal(name, what, line)
        except TimeoutError:
            return Refusal("expensive", f"searching one line takes more than {_SEARCH_S} s", line)
    return None


_CHILD = """
import json, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
import regex
from diagnose.matching import shapes
from diagnose.matching.databases import Pattern, Wheel, SINGLEMATCH
from diagnose.verification.rules import PROBES, body_of
wheel = Wheel()
for pattern, metrics, lines in json.load(sys.stdin):
    signal.alarm(int(sys.argv[2]))
    try:
        wheel.compile([Pattern(pattern, SINGLEMATCH, 0)])
        wheel.compile([Pattern(shapes.relaxed(pattern), SINGLEMATCH | 16, 0)])
        for expression in [regex.compile(one.encode()) for one in [pattern, *metrics]]:
            for line in [*PROBES, *lines]:
                expression.search(body_of(line), timeout=float(sys.argv[3]))
        print("ok", flush=True)
    except MemoryError:
        print("it takes too much memory to compile", flush=True)
    except TimeoutError:
        print("searching one line takes more than " + sys.argv[3] + " s", flush=True)
    except Exception as error:
        print("refused: " + str(error).replace("\\n", " ")[:200], flush=True)
"""


def _tried(tries: list[tuple[str, list[str], list[str]]]) -> list[str | None]:
    """What is wrong with compiling each (pattern, its metrics' patterns, its lines) and searching the lines.

    Found out by a child that may die of it.
    """
    found: list[str | None] = []
    while len(found) < len(tries):
        done = subprocess.run(  # noqa: S603 - our own interpreter; the patterns go in as data
            [sys.executable, "-c", _CHILD, str(_MEMORY), str(_COMPILE_S), str(_SEARCH_S)],
            input=json.dumps(tries[len(found) :]),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = done.stdout.splitlines()
        found += [None if answer == "ok" else answer for answer in answers]
        if done.returncode and len(found) < len(tries):
            if not answers and re.search(r"^(?:ModuleNotFound|Import)Error", done.stderr, re.M):
                raise RuleError("patterns cannot be tried", where="learned", remedy=done.stderr.strip().splitlines()[-1])
            found.append(f"it takes more than {_COMPILE_S} s or {_MEMORY >> 20} MiB to compile")
    return found
