"""Learning from one job while it runs: unknown lines go to the worker process, and rules that may act come back into the
matcher.

``feed`` never waits. A rule in shadow drops nothing. A rule that becomes active is added to the matcher, and a rule that
matched evidence of a failure is taken out of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.learning.learned_rule import Counts
from diagnose.learning.rule_store import RuleFile, RuleStore, usable
from diagnose.learning.worker_process import WORKER, WorkerProcess, about
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan

if TYPE_CHECKING:
    from diagnose.model.settings import Settings

_PATIENCE_S = 20.0
"""how long the end of a job may wait for the last lesson"""
_TOO_MANY = 200
"""if the matcher has more rules than this in its small second database, both are compiled into one"""


@dataclass(slots=True)
class Summary:
    """The result of learning from a job."""

    lines: int = 0
    """kept lines of the job"""
    missed: int = 0
    """those of them for which there was no room"""
    active: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Learner:
    """Gives the lines that no rule knows to the worker process, and the rules that became active to the matcher."""

    def __init__(
        self,
        rules: str | Path,
        matcher: Matcher,
        job: str,
        settings: Settings | None = None,
        workload: str = "",
        *,
        lesson_s: float | None = None,
    ) -> None:
        """``rules``: the file of learned rules. ``settings``: of a model that is asked for rules. ``lesson_s``: how long the
        worker waits between two lessons, if not as long as it does by itself."""
        self.summary = Summary()
        self._matcher, self._job, self._workload = matcher, job, workload
        self._file = RuleFile(rules)
        self._store = RuleStore(self._file)
        self._at_work = {rule.id for rule in matcher.rules if rule.family == "filters"}
        self._added = 0
        self._process = WorkerProcess(WORKER, lambda: about(rules, settings, lesson_s), self._receive, self._ended)
        self._process.start()
        self._process.order({"kind": "tick"})  # so that it is there when the first lines come

    def feed(self, scans: Sequence[Scan]) -> None:
        """Take the lines that were just scanned. Returns at once."""
        fed, missed = self._process.feed(self._job, self._workload, scans)
        self.summary.lines += fed + missed
        self.summary.missed += missed

    def close(self, dropped: Counter[int] | None = None, patience_s: float = _PATIENCE_S) -> Summary:
        """The job has ended, or is left. ``dropped``: how many lines each rule of the matcher dropped."""
        if not self._process.finish(patience_s):
            said = f"the last lesson took more than {patience_s:.0f} s: the next run goes on with it"
            self.summary.problems.append(said)
        self._count(dropped or Counter())
        self._file.close()
        return self.summary

    def _count(self, dropped: Counter[int]) -> None:
        """Count what the active learned rules dropped. A rule that drops nothing for long is retired."""
        learned = {known.rule.id for known in self._store.rules("active", family="filters")}
        now = time.time()
        for number, lines in dropped.items():
            if (rule := self._matcher.rules[number]).id in learned and lines > 0:
                self._store.count(rule.id, self._workload, Counts(lines, 0, 1, now))

    def _receive(self, said: dict[str, Any]) -> None:
        self.summary.problems += said.get("problems", [])
        if "changed" in said:
            self._swap({name for name, state in said["changed"] if state == "retired"})

    def _swap(self, retired: set[str]) -> None:
        """Put the rules that may act for this job to work in the matcher, and take out those that were retired."""
        acting = [one for one in self._store.rules("active", family="filters") if one.acts_for(self._workload)]
        fresh = [known for known in acting if known.rule.id not in self._at_work]
        self._at_work |= {known.rule.id for known in fresh}
        if rules := [known.rule for known in usable(fresh)]:
            self._matcher.add(rules)
            self.summary.active += [rule.id for rule in rules]
            self._added += len(rules)
            if self._added > _TOO_MANY:
                self._matcher.absorb()
                self._added = 0
        if gone := sorted(retired & self._at_work):
            self._matcher.retire(gone)
            self.summary.retired += gone

    def _ended(self, in_order: bool) -> None:
        if not in_order:
            self.summary.problems.append("the worker ended before the job did")
