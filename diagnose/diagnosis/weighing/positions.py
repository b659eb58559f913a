"""Where does it stand in the log?"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import prose
from diagnose.diagnosis.weighing.fallout import is_fallout
from diagnose.diagnosis.weighing.scene import LAST_LINES, OFTEN, STACK, Scene, only_words
from diagnose.diagnosis.weighing.work import Work

_SOFTLY = 0.4
"""the value of the signal "first" for a line that only has words of failure"""
_MUCH = 20
"""after so many calm lines, a line is an old story"""
_SCRAP_LINES = 2
"""an excerpt ends so few lines behind what it was cut out for"""


class Positions:
    """Where hypotheses stand, and how often. ``hypotheses`` are all of the log."""

    def __init__(self, scene: Scene, work: Work, hypotheses: Sequence[Hypothesis]) -> None:
        self.scene, self.work, self.all = scene, work, hypotheses
        self._heard: dict[int, list[int]] = {}
        self._stacked: dict[int, list[int]] = {}

    def judge(self, one: Hypothesis) -> None:
        """Give it the signals of its place: the last words, or an old story."""
        if one.detector is not None:
            return
        last = max((other.event.line for other in (one, *one.same) if other.event.source == one.event.source), default=0)
        behind = self.scene.ends[one.event.source] - last
        if behind <= min(LAST_LINES, self.scene.ends[one.event.source] // 4):
            if not one.fatal:
                one.signals["last_words"] = 1.0
            if one.kind == "line" and one.like.loud and "softened" not in one.signals:
                one.signals["loud_end"] = 1.0
        elif one.kind == "line" or "warned" in one.signals or ("shown" in one.signals and one.handled):
            calm = behind - self._heard_after(one.event.source, last) - self._stacked_after(one.event.source, last)
            one.signals["followed"] = min(1.0, max(0, calm) / _MUCH)
        if (one.kind == "line" or "warned" in one.signals) and self.work.counts_on(one, last):
            one.signals["worked_on"] = 1.0
        if one.kind == "line" and self._times_said(one) > OFTEN:
            one.signals["repeated"] = 1.0
        if self.scene.in_text(one) or (one.kind == "line" and only_words(one) and prose(one.event.body)):
            one.signals["prose"] = 1.0
        if ("warned" in one.signals or one.kind == "line") and self._scrap(one, self.scene.ends[one.event.source] - last):
            one.signals["scrap"] = 1.0

    def _times_said(self, one: Hypothesis) -> int:
        """The most times that a single rank said it, because every rank may say it once."""
        said = Counter((same.event.source, self.scene.evidence.rank_of(same.event)) for same in (one, *one.same))
        return max(said.values())

    def _heard_after(self, source: int, line: int) -> int:
        """How many hypotheses stand after ``line`` in the source."""
        if source not in self._heard:
            self._heard[source] = sorted(one.event.line for one in self.all if one.event.source == source)
        return len(self._heard[source]) - bisect_right(self._heard[source], line)

    def _stacked_after(self, source: int, line: int) -> int:
        """How many lines after ``line`` belong to a stack, a table or a frame. They are part of what stands above them."""
        if source not in self._stacked:
            self._stacked[source] = [e.line for e in self.scene.evidence.events if e.source == source and STACK.match(e.body)]
        return len(self._stacked[source]) - bisect_right(self._stacked[source], line)

    def _scrap(self, one: Hypothesis, behind: int) -> bool:
        """Whether the log is an excerpt with little else in it: no step, no end, no recovery."""
        if self.scene.found.well or any(course.signs_after(0) for course in self.scene.courses):
            return False
        if one.rule is not None and one.rule.layer in ("hardware", "driver") and one.rule.action == "isolate_and_restart":
            return True
        if one.rule is not None and not self.scene.taxonomy.has(one.reason, "reached"):
            return False
        return behind <= _SCRAP_LINES and 2 * (1 + len(one.same)) >= self.scene.ends[one.event.source]

    def mark_first(self, kinds: Sequence[Hypothesis]) -> None:
        """Mark the first of each weight that the job did not survive."""
        seen: set[str] = set()
        for one in kinds:
            if one.recovered or (
                "softened" in one.signals and "scrap" not in one.signals and weight_of(one, self.scene) == "heard"
            ):
                continue  # the program knew another way
            if not is_fallout(one, kinds, self.scene) and (weight := weight_of(one, self.scene)) not in seen:
                seen.add(weight)
                soft = one.kind == "line" and not one.like.loud and (one.words is None or not one.words.plain)
                one.signals["first_heard" if weight == "heard" else "first"] = _SOFTLY if soft else 1.0


def weight_of(one: Hypothesis, scene: Scene) -> str:
    """How much it tells: an end, an error, a stop, an echo, or a line that was only heard."""
    if one.kind == "line" or "warned" in one.signals or "unfinished" in one.signals:
        return "heard"
    if one.symptom:
        return "nameless" if scene.taxonomy.has(one.reason, "nameless") else "echo"
    if scene.taxonomy.has(one.reason, "stop"):
        return "stop"
    return "end" if one.fatal else "noted"
