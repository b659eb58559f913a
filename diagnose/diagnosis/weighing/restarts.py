"""Whether a job was started again within its log: its first lines, or those of its own run, stand there again."""

from __future__ import annotations

from functools import cached_property

from diagnose.diagnosis.evidence import Event, normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.runs import launched_again as launches
from diagnose.diagnosis.weighing.scene import Scene

_BEFORE_LINES, _OWN, _OWN_LEAST, _SPAN_LINES = 120, 12, 6, 300
"""a run's own lines stand so near before its failure, are so long, and at least so many; they stand again within so many"""


class Restarts:
    """The runs that one log holds."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.over: set[tuple[int, int]] = set()
        """(source, line) where a run was over before another one began"""
        self._launches: dict[int, list[int]] = {}
        self._own: dict[int, dict[str, list[int]]] = {}

    def after(self, one: Hypothesis) -> bool:
        """Whether another run follows it."""
        return self._started_anew(one) or self._ran_again(one) or self._launched_again(one)

    def _started_anew(self, one: Hypothesis) -> bool:
        """Whether the first lines of its source come again behind it: the program was started again."""
        return one.event.line < self.scene.found.runs.last(one.event.source)

    def _ran_again(self, one: Hypothesis) -> bool:
        """Whether the lines of its own run before it stand again behind it: the program was called again, and got further.

        Where several ranks write into one file, such lines stand there several times, so nothing is concluded.
        """
        traceback = one.traceback
        if traceback is None or not (one.ends_process or one.handled) or self.scene.ranks_speak:
            return False
        lines = self._own_lines(one.event.source)
        if one.handled:  # whoever says again what it said before it goes on, or was called again
            return sum(at[0] < traceback.begin and at[-1] > one.event.line for at in lines.values()) >= _OWN_LEAST
        since = traceback.begin - _BEFORE_LINES
        own = {text: line for text, line in lines.items() if any(since <= at < traceback.begin for at in line)}
        if len(own) < _OWN_LEAST or any(sum(since <= at < traceback.begin for at in line) > 1 for line in own.values()):
            return False
        again = sorted(at for line in own.values() if (at := next((at for at in line if at > one.event.line), None)))
        return 5 * len(again) >= 4 * len(own) and again[-1] - again[0] <= _SPAN_LINES

    def _own_lines(self, source: int) -> dict[str, list[int]]:
        """What a source says, as far as no rule knows it and no traceback claims it -> the lines where it says so."""
        if source not in self._own:
            self._own[source] = {}
            for event in self.scene.found.unclaimed:
                if event.source == source and len(event.body) >= _OWN:
                    self._own[source].setdefault(normal(event.body), []).append(event.line)
        return self._own[source]

    def _launched_again(self, one: Hypothesis) -> bool:
        """Whether the run that it belongs to was over, and the next one failed for a reason of its own."""
        source, line = one.event.source, one.event.line
        if source not in self._launches:
            self._launches[source] = self._failed_again(source)
        over = next((over for over in self._launches[source] if line <= over), None)
        if over is not None:
            self.over.add((source, over))
        return over is not None

    def _failed_again(self, source: int) -> list[int]:
        """Where runs were over, if the next one failed for a reason of its own."""
        failed = self._failures.get(source, ())
        told = launches(self._events.get(source, ()))
        return [over for over, over_again in told if any(over < line < over_again for line in failed)]

    @cached_property
    def _events(self) -> dict[int, list[Event]]:
        return {events[0].source: events for events in self.scene.evidence.by_source()}

    @cached_property
    def _failures(self) -> dict[int, list[int]]:
        """source -> the lines of failures that end something"""
        found: dict[int, list[int]] = {}
        for one in self.scene.found.hypotheses:
            if _ends(one):
                found.setdefault(one.event.source, []).append(one.event.line)
        return found


def _ends(one: Hypothesis) -> bool:
    return one.fatal and not one.symptom
