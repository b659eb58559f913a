"""Whether a program talks on calmly after what a handler of it printed."""

from __future__ import annotations

import re
from bisect import bisect_right

from diagnose.diagnosis.evidence import Event, normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import leaves, level
from diagnose.diagnosis.weighing.retries import attempts_left, tries_left
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.diagnosis.weighing.work import Work

CALM = re.compile(  # nothing is tried twice: a line of dashes would take minutes
    r"^\W*+(?:[\w.:,/+]++(?:-++(?!(?:INFO|DEBUG)\b)[\w.:,/+]++)*+\]?+[ \t|-]++){0,3}\W*+(?:INFO|DEBUG)\b|^\[ Info: "
)
_TALKS = 2
"""so many calm lines are talk"""


class Talk:
    """The calm lines of each source, and the loud ones."""

    def __init__(self, scene: Scene, work: Work) -> None:
        self.scene, self.work = scene, work
        self._talks: dict[int, tuple[list[int], list[int], list[tuple[int, str | None]]]] = {}

    def goes_on(self, one: Hypothesis) -> bool:
        """Whether a handler printed it (a traceback that does not begin at the top of the program, or what stands under a
        logger's line) and calm lines follow it.
        """
        traceback = one.traceback
        if traceback is None:
            handled = (one.below is not None or tries_left(one, self.scene)) and one.event.rule >= 0
        else:
            handled = bool(traceback.frames) and (not traceback.from_top or traceback.caught) and one.event.rule >= 0
        if not handled:
            return False
        calm, informing, loud = self._talk(one.event.source)
        below = _under(one)
        loudest = max((line for line, text in loud if below is None or text != below), default=0)
        last = max((line for line, _ in loud), default=0)
        since = max(last, one.event.line)
        behind = len(calm) - bisect_right(calm, since)
        if one.below is None:  # the last words of a program may stand under a line of its logger, and others log on
            behind += len(informing) - bisect_right(informing, since)
        return loudest <= one.event.line and behind >= _TALKS

    def _talk(self, source: int) -> tuple[list[int], list[int], list[tuple[int, str | None]]]:
        """(the calm lines of a source; others whose level is that of information; the lines that a failure rule knows, with
        the logger's line above them).
        """
        if source not in self._talks:
            spans = self._spans(source)
            calm: list[int] = []
            informing: list[int] = []
            loud: list[tuple[int, str | None]] = []
            for event in self.scene.evidence.events:
                if event.source != source:
                    continue
                if (kind := _calm(event)) is not None:
                    lines = calm if kind else informing
                    lines.append(event.line)
                    if (fold := self.work.folds.get((source, event.line))) is not None and fold.last > event.line:
                        lines.append(fold.last)
                elif attempts_left(event.body):
                    continue
                elif (rule := self.scene.evidence.rule(event)) is not None and rule.reason != "healthy":
                    loud.append((event.line, next((text for begin, end, text in spans if begin <= event.line <= end), None)))
            self._talks[source] = sorted(calm), sorted(informing), loud
        return self._talks[source]

    def _spans(self, source: int) -> list[tuple[int, int, str]]:
        """Where the messages stand that go on below a logger's line of trouble: (first line, last line, that first line)."""
        found = []
        for one in self.scene.found.hypotheses:
            if one.event.source == source and (text := _under(one)) is not None:
                above = one.below if one.traceback is None else one.traceback.under
                found.append((above.line if above is not None else one.event.line, one.event.line, text))
        return found


def _calm(event: Event) -> bool | None:
    """Whether its form is that of a calm line, or only its level; None if neither is."""
    told = bool(CALM.match(event.text) or CALM.match(event.body))
    return told if (told or level(event.text) == "info") and not leaves(event.body) else None


def _under(one: Hypothesis) -> str | None:
    """The logger's line above it, without numbers."""
    above = one.below if one.traceback is None else one.traceback.under
    return normal(above.body) if above is not None else None
