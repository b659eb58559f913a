"""The matchers of all scanners, and which learned rules act in them.

A learned rule acts for the jobs of the workloads that it was learned from, of its project, or for all. So a scanner has one
general matcher, and one more for each workload or project that has rules of its own. All matchers hold all learned rules under
the same numbers; rules that do not act rest. So a job can move from one matcher to another between two blocks and keep its
counts.

Only ``refresh`` changes this: it reads the rule store and swaps what has changed, whoever changed it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diagnose.compression.workload import Fingerprint, nearest
from diagnose.knowledge.rules import RuleSet
from diagnose.matching.matcher import EARLY, Matcher, unusable
from service.projects import DEFAULT, MARK, parted, qualified

if TYPE_CHECKING:
    from diagnose.learning.learned_rule import LearnedRule
    from diagnose.learning.rule_store import RuleStore

log = logging.getLogger("diagnose.matchers")

_TOO_MANY = 200
"""if a matcher has more learned rules than this in its small second database, both are compiled into one"""
_UNUSED_S = 600.0


@dataclass(slots=True)
class _ScannerMatcher:
    """A scanner's matcher for one workload, or (None) for any."""

    matcher: Matcher
    workload: str | None
    known: int = 0
    """how many of the learned rules have numbers in it"""
    used: float = field(default_factory=time.monotonic)
    acting: set[str] = field(default_factory=set)
    delta: int = 0


@dataclass(frozen=True, slots=True)
class Swap:
    """What a refresh changed."""

    active: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)


class Matchers:
    """Scanners call ``open`` and ``of``. Other threads call the rest."""

    def __init__(self, rules: RuleSet, store: RuleStore | None, *, most_workloads: int) -> None:
        """``store`` has the learned rules; None: there are none."""
        self._rules, self._store, self._most = rules, store, most_workloads
        self._shipped = {rule.id for rule in rules}
        self._any: dict[int, _ScannerMatcher] = {}
        self._own: dict[tuple[int, str], _ScannerMatcher] = {}
        self._asked: set[tuple[int, str]] = set()
        self._workloads: dict[str, Fingerprint] = {}
        self._order: list[LearnedRule] = []
        """all learned rules that ever acted since the start, in the order of their numbers"""
        self._bad: set[str] = set()
        self._active: set[str] = set()
        self._lock = threading.RLock()
        self.watched = False
        """failure rules act or wait in shadow, so they want to know of ends of jobs"""

    def open(self, scanner: int) -> Matcher:
        """Compile the general matcher of a scanner."""
        with self._lock:
            held = _ScannerMatcher(Matcher(self._rules, reserved=EARLY), None)
            self._catch_up(held)
            self._any[scanner] = held
            return held.matcher

    def of(self, scanner: int, workload: str | None) -> Matcher:
        """The matcher for a job of ``workload``: its own if there is one, else its project's, else the general one.

        ``PROJECT~`` is a job of a project of which no more is known yet.
        """
        if workload is not None:
            project, mark, _ = workload.partition(MARK)
            for name in (workload, project + mark) if mark else (workload,):
                held = self._own.get((scanner, name))
                if held is not None:
                    held.used = time.monotonic()
                    return held.matcher
                self._asked.add((scanner, name))
        return self._any[scanner].matcher

    def learned(self, rule_id: str) -> bool:
        return rule_id not in self._shipped

    # --- workloads -----------------------------------------------------------------------------------------------------------

    def workload(self, job: Fingerprint, project: str = DEFAULT) -> str | None:
        """The workload that a job belongs to, or is the first of: decisions tell kinds of jobs apart. It is stored later.

        Those of a project have its name before them: what is learned in it acts for its own jobs.
        """
        with self._lock:
            name = nearest(job, {name: one for name, one in self._workloads.items() if parted(name)[0] == project})
            if name is None and job.sketch:
                name = qualified(project, str(job))
                self._workloads[name] = job
            return name

    # --- hot swap ------------------------------------------------------------------------------------------------------------

    def refresh(self) -> Swap:
        """Bring all matchers up to date with the rule store. Raises what the database raises."""
        if self._store is None:
            return Swap()
        known = self._store.workloads()
        active = self._store.rules("active")
        self.watched = bool(self._store.rules("shadow", "active", family="failures"))
        with self._lock:
            fresh = {name: job for name, job in self._workloads.items() if name not in known}
            self._workloads = {**known, **fresh}
        for name, job in fresh.items():
            self._store.enrol(name, job)
        with self._lock:
            return self._swap(active)

    def _swap(self, active: list[LearnedRule]) -> Swap:
        numbered = {known.rule.id for known in self._order}
        now = {
            known.rule.id: known for known in active if known.rule.id not in self._shipped and known.rule.id not in self._bad
        }
        self._order = [now.get(known.rule.id, known) for known in self._order]
        added = [known for name, known in now.items() if name not in numbered]
        before = self._active
        for known in self._compiled(added):
            self._order.append(known)
        self._active = {name for name in now if name not in self._bad}
        for held in (*self._any.values(), *self._own.values()):
            self._catch_up(held)
        self._make_own(now.values())
        return Swap(sorted(self._active - before), sorted(before - self._active))

    def _compiled(self, added: list[LearnedRule]) -> list[LearnedRule]:
        bad = unusable([known.rule for known in added])
        for name, why in bad.items():
            log.error("the learned rule %s cannot be used, and is left out: %s", name, why)
        self._bad |= bad.keys()
        return [known for known in added if known.rule.id not in bad]

    def _catch_up(self, held: _ScannerMatcher) -> None:
        """Give every learned rule its number, and let it act or rest as the workload wants it."""
        missing = self._order[held.known :]
        wanted = {k.rule.id for k in self._order if k.rule.id in self._active and k.acts_for(held.workload)}
        if missing:
            held.matcher.add([known.rule for known in missing], {known.rule.id for known in missing} - wanted)
            held.acting |= {known.rule.id for known in missing} & wanted
            held.known += len(missing)
            held.delta += len(missing)
        if gone := held.acting - wanted:
            held.matcher.retire(gone)
        if back := wanted - held.acting:
            held.matcher.wake(back)
        held.acting = wanted
        if held.delta > _TOO_MANY:
            held.matcher.absorb()
            held.delta = 0

    def _make_own(self, active: Iterable[LearnedRule]) -> None:
        """Make matchers for the workloads that were asked for and have their own rules. Unused ones go."""
        special: set[str] = set()
        for known in active:
            if known.scope == "project":
                special.add(f"{known.project}{MARK}")
            if known.scope != "global":
                special |= {name for name in known.workloads if known.acts_for(name)}
        old = time.monotonic() - _UNUSED_S
        for key in [key for key, held in self._own.items() if held.used < old or key[1] not in special]:
            del self._own[key]
        asked, self._asked = self._asked, set()
        for scanner, workload in sorted(asked):
            if workload in special and len(self._own) < self._most:
                held = _ScannerMatcher(Matcher(self._rules, reserved=EARLY), workload)
                self._catch_up(held)
                self._own[scanner, workload] = held
