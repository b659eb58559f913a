"""Work in numbers that no rule knows: regular lines that count up."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import islice

from diagnose.compression.folds import Fold
from diagnose.diagnosis.evidence import Event, normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import heard
from diagnose.diagnosis.weighing.counting import counted_up
from diagnose.diagnosis.weighing.scene import LAST_LINES, STACK, Scene
from diagnose.diagnosis.weighing.speakers import body_of

_COUNTS, _TAIL = 5, 200
"""so many lines of one kind that count up are work; of the last so many that no rule knows"""
_REGULAR = 60
"""so many lines of one kind are regular work, not the echo of a failure"""


class Work:
    """The regular lines of a log, and which of them count up."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._tails: dict[int, list[list[Event]]] = {}

    @cached_property
    def progressed(self) -> bool:
        return any(course.signs_after(0) for course in self.scene.courses) or bool(self.regular)

    def goes_on(self, one: Hypothesis) -> bool:
        """Whether a new kind of regular line begins after it, counts up, and goes on to the end. The program then works in
        numbers that no rule knows.

        If many ranks speak, their last lines look alike, so nothing is concluded.
        """
        source, line = one.event.source, one.event.line
        if one.layer <= self.scene.taxonomy.depth("network") or self.scene.ranks_speak:
            return False
        return any(
            fold.source == source and fold.first > line and self.scene.ends[source] - fold.last <= LAST_LINES
            for fold in self.regular
        )

    def before(self, one: Hypothesis) -> bool:
        """Whether regular lines before it count up: its run was then at work, in steps that no rule knows."""
        source, line = one.event.source, one.event.line
        start = self.scene.found.runs.last(source)
        return any(fold.source == source and fold.first < line and fold.last >= start for fold in self.regular)

    def around(self, one: Hypothesis, line: int) -> bool:
        """Whether lines that count up stand on both sides of a line, to the end of its source."""
        source = one.event.source
        return not self.scene.ranks_speak and any(
            fold.source == source and fold.first < line and self.scene.ends[source] - fold.last <= LAST_LINES
            for fold in self.regular
        )

    @cached_property
    def regular(self) -> list[Fold]:
        """The folds whose lines count up, nearly every time."""
        regular = {(fold.source, fold.first): fold for fold in self.scene.log.folds() if fold.lines >= _REGULAR}
        if not regular:
            return []
        found = []
        for event in self.scene.evidence.events:
            fold = regular.get((event.source, event.line))
            if fold is not None and counted_up(event.body, body_of(fold.text), fold.folded // 2):
                found.append(fold)
        return found

    @cached_property
    def folds(self) -> dict[tuple[int, int], Fold]:
        """Where a fold begins -> the fold."""
        return {(fold.source, fold.first): fold for fold in self.scene.log.folds()}

    def counts_on(self, one: Hypothesis, last: int) -> bool:
        """Whether lines of one kind stand after it up to the end of its source, in which a number rises."""
        if self.scene.ranks_speak:
            return False
        source = one.event.source
        if source not in self._tails:
            self._tails[source] = self._tail(source)
        for lines in self._tails[source]:
            after = lines[bisect_right(lines, last, key=lambda event: event.line) :]
            if not after:
                continue
            fold = self.folds.get((source, after[0].line))
            many, text = (len(after), after[-1].body) if fold is None else (fold.lines, body_of(fold.text))
            if many >= _COUNTS and counted_up(after[0].body, text, _COUNTS - 1):
                return True
        return False

    def _tail(self, source: int) -> list[list[Event]]:
        """The lines of each kind that a source ends with, if no rule knows the kind, it sounds calm and is of no stack."""
        kinds: dict[str, list[Event]] = {}
        near = self.scene.ends[source] - LAST_LINES
        here = (event for event in reversed(self.scene.found.unclaimed) if event.source == source)
        for event in islice(here, _TAIL):
            if STACK.match(event.body):
                continue
            fold = self.folds.get((source, event.line))
            kind = normal(event.body)
            if kind not in kinds and (event.line if fold is None else fold.last) > near:
                kinds[kind] = []
            if kind in kinds:
                kinds[kind].append(event)
        return [lines[::-1] for lines in kinds.values() if not heard(lines[0].text, lines[0].body).sounds]
