"""Kept lines of live jobs -> filters: unknown lines are gathered, proposed as rules, judged, counted in shadow, and then act.

One thread feeds the school, and regularly calls ``tick``. A lesson may ask a model, which takes minutes. So it has its own
thread, and rules are counted meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import said_first
from diagnose.knowledge.rules import RuleSet
from diagnose.learning.learned_rule import Counts, LearnedRule, project_of
from diagnose.learning.lesson import AskForRules, hold_lesson
from diagnose.learning.miner import Miner
from diagnose.learning.rule_store import RuleStore, settle
from diagnose.learning.wire import emit
from diagnose.matching.matcher import Matcher, unusable
from diagnose.matching.scan import KEPT
from diagnose.reading.prefixes import body_start
from diagnose.redaction.text import clear

LESSON_S = 5.0
"""between two lessons while lines come in"""
_FEWEST_NEW = 20
"""so many lines are worth a lesson"""
_MOST_WORKLOADS = 16
"""lines of so many workloads are gathered at one time"""
_MOST_EVIDENCE = 5_000
_PROBLEMS = 5


class Workable:
    """Which learned rules compile here. One that does not is logged once and left out."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._bad: set[str] = set()
        self._lock = threading.Lock()

    def of(self, known: Sequence[LearnedRule]) -> list[LearnedRule]:
        with self._lock:
            fresh = [one.rule for one in known if one.rule.id not in self._tried]
            self._tried |= {rule.id for rule in fresh}
            if bad := unusable(fresh, "plain"):
                self._bad |= bad.keys()
                emit(
                    problems=[
                        f"the learned rule {name} cannot be used here, and is left out: {why}" for name, why in bad.items()
                    ]
                )
            return [one for one in known if one.rule.id not in self._bad]


@dataclass(slots=True)
class _Gathered:
    """Unknown lines of one workload."""

    miner: Miner = field(default_factory=Miner)
    jobs: dict[str, None] = field(default_factory=dict)
    new: int = 0


class School:
    """Unknown lines -> proposals -> shadow -> active, for all jobs."""

    def __init__(
        self,
        store: RuleStore,
        workable: Workable,
        *,
        redacts: bool = True,
        lesson_s: float = LESSON_S,
        roots: Callable[[], list[str]] = list,
    ) -> None:
        """``roots``: the lines that known failures began with."""
        self.store, self._workable, self._redacts, self._lesson_s = store, workable, redacts, lesson_s
        self._roots = roots
        self.ask: AskForRules | None = None
        """asks a model for rules; None: the miner's templates"""
        self._gathered: OrderedDict[str, _Gathered] = OrderedDict()
        self._evidence: OrderedDict[str, None] = OrderedDict()
        self._counts: dict[tuple[str, str], Counts] = {}
        self._counted: Matcher | None = None
        self._projects: dict[str, str] = {}
        """rule -> the project that it is for"""
        self._lock = threading.Lock()
        self._segment = 0
        self._last = time.monotonic()
        self._lesson: threading.Thread | None = None
        self._count()

    def take(self, job: str, workload: str, records: bytes, text: bytes) -> None:
        """Take the kept lines of one scan."""
        unknown: list[str] = []
        evidence: list[str] = []
        matched: Counter[str] = Counter()
        dirty: Counter[str] = Counter()
        counted, projects, project = self._counted, self._projects, project_of(workload)
        for _, offset, length, rule, cut, *_ in KEPT.iter_unpack(records):
            if cut:
                continue
            segment = text[offset : offset + length]
            body = segment[body_start(segment) :]
            hits = [counted.rules[number].id for number in counted.matches(body)] if counted is not None else []
            if hits and projects:
                hits = [name for name in hits if projects.get(name) in (None, project)]
            matched.update(hits)
            if rule == -1:
                unknown.append(body.decode("utf-8", "replace"))
            elif rule >= 0:
                dirty.update(hits)
                evidence.append(body.decode("utf-8", "replace"))
        # A rule has lines as examples, and words of them in its pattern. What may not be stored may not be in a rule either.
        fresh = clear(unknown) if self._redacts else unknown
        now = time.time()
        with self._lock:
            self._gather(job, workload, fresh)
            self._remember(evidence)
            for name, times in matched.items():
                key = name, workload
                self._counts[key] = self._counts.get(key, Counts()) + Counts(times, dirty[name], 0, now)

    def tick(self) -> None:
        """To be called regularly: counts are stored, states follow from them, and the next lesson begins if the last one is
        over.
        """
        if time.monotonic() - self._last < self._lesson_s:
            return
        self._last = time.monotonic()
        self._settle()
        if self._lesson is not None and self._lesson.is_alive():
            return  # with a slow model it may take half an hour
        with self._lock:
            ready = max(self._gathered.items(), key=lambda pair: pair[1].new, default=("", _Gathered()))
            if ready[1].new >= _FEWEST_NEW:
                del self._gathered[ready[0]]
                self._lesson = threading.Thread(target=self._hold_lesson, args=ready, name="lesson", daemon=True)
                self._lesson.start()

    def finish(self) -> None:
        """There are no more lines: give the last lessons."""
        if self._lesson is not None:
            self._lesson.join()
        self._settle()
        with self._lock:
            left, self._gathered = list(self._gathered.items()), OrderedDict()
        for workload, gathered in left:
            if gathered.new:
                self._hold_lesson(workload, gathered)

    def _gather(self, job: str, workload: str, lines: Sequence[str]) -> None:
        gathered = self._gathered.setdefault(workload, _Gathered())
        self._gathered.move_to_end(workload)
        if len(self._gathered) > _MOST_WORKLOADS:
            self._gathered.popitem(last=False)
        gathered.jobs[job] = None
        for line in lines:
            gathered.miner.add(line)
            gathered.new += 1

    def _remember(self, evidence: Sequence[str]) -> None:
        for line in evidence:
            self._evidence[line] = None
            if len(self._evidence) > _MOST_EVIDENCE:
                self._evidence.popitem(last=False)

    def _settle(self) -> None:
        """Store the counts, and move every rule to the state that follows from them."""
        with self._lock:
            counts, self._counts = self._counts, {}
        try:
            for name, workload in list(counts):
                self.store.count(name, workload, counts[name, workload])
                del counts[name, workload]
        finally:
            with self._lock:  # what the database did not take, it takes the next time
                for key, met in counts.items():
                    self._counts[key] = self._counts.get(key, Counts()) + met
        emit(changed=[(known.rule.id, known.state) for known in settle(self.store, time.time())])
        self._count()

    def _count(self) -> None:
        """The filters that are counted from now on: those in shadow, and the active ones, which may still meet evidence."""
        known = self._workable.of(self.store.rules("shadow", "active", family="filters"))
        rules = {one.rule.id for one in known}
        self._projects = {one.rule.id: one.project for one in known if one.project is not None and one.scope != "global"}
        if rules != ({rule.id for rule in self._counted.rules} if self._counted is not None else set()):
            self._counted = Matcher(RuleSet.of(one.rule for one in known), "plain") if known else None

    def _hold_lesson(self, workload: str, gathered: _Gathered) -> None:
        with self._lock:
            evidence = list(self._evidence)
            self._segment += 1
            segment = self._segment
        try:
            evidence += self._roots()
            now = time.time()
            lesson = hold_lesson(
                gathered.miner,
                list(gathered.jobs),
                self.store,
                evidence,
                now,
                segment=segment,
                ask=self.ask,
                project=project_of(workload),
            )
        except SQLAlchemyError as error:
            emit(problems=[f"a lesson was lost: {said_first(error)}"])
            return
        emit(
            lesson={"proposed": lesson.proposed, "refused": len(lesson.refused)},
            problems=list(dict.fromkeys(lesson.problems))[:_PROBLEMS],
        )
