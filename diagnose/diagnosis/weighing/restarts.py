"""Whether a job was started again within its log: its first lines, or those of its own run, stand there again."""

from __future__ import annotations

from functools import cached_property

from diagnose.diagnosis.evidence import Event, normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.runs import launched_again as launches
from diagnose.diagnosis.vocabulary import Sought
from diagnose.diagnosis.weighing.deaths import Deaths
from diagnose.diagnosis.weighing.scene import Scene

_BEFORE_LINES, _OWN, _OWN_LEAST, _SPAN_LINES = 120, 12, 6, 300
"""a run's own lines stand so near before its failure, are so long, and at least so many; they stand again within so many"""
_OPENING = 2
"""so many lines are what a program says first"""
_EXECUTES = Sought(
    r"^001 \((?P<condor>[\d.]+)\) .*Job executing on host|^013 \((?P<released>[\d.]+)\) .*Job was released"
    r"|;(?P<pbs>\d[^;]*);Job (?:Run|Rerun) at request of "
)
"""a batch system says which job runs: HTCondor, PBS. LSF says it in a line without the number"""


class Restarts:
    """The runs that one log holds."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.over: set[tuple[int, int]] = set()
        """(source, line) where a run was over before another one began"""
        self._deaths = Deaths(scene)
        self._launches: dict[int, list[int]] = {}
        self._own: dict[int, dict[str, list[int]]] = {}

    def after(self, one: Hypothesis) -> bool:
        """Whether another run follows it."""
        return (
            self._started_anew(one)
            or self._ran_again(one)
            or self._launched_again(one)
            or self._begun_again(one)
            or self._executes_again(one)
            or self._died_again(one)
        )

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

    def _begun_again(self, one: Hypothesis) -> bool:
        """Whether the program says behind it what it said first, and then fails again: a short run, and another one.

        Ranks that write into one file say their first lines before one of them fails. The stages of a script may say the same,
        letter by letter, and a later one fails of what the first did not leave: so another run says another time or number, or
        fails for the same reason.
        """
        if not (one.fatal or one.ends_process) or one.symptom or self.scene.ranks_speak:
            return False
        source, end = one.event.source, one.event.line
        begin = one.traceback.begin if one.traceback is not None else end
        opening = [lines for lines in list(self._own_lines(source).values())[:_OPENING] if lines[0] < begin]
        again = [
            next((line for line in lines if line > end), 0) for lines in opening if sum(line < begin for line in lines) == 1
        ]
        if len(again) < _OPENING or not 0 < again[0] < again[1]:
            return False
        said = {event.line: event.body for event in self._events[source]}
        other = any(said[lines[0]] != said[line] for lines, line in zip(opening, again, strict=True))
        return any(
            later.event.source == source and later.event.line > again[1] and (other or later.reason == one.reason)
            for later in self.scene.found.hypotheses
            if _ends(later)
        )

    def _died_again(self, one: Hypothesis) -> bool:
        """Whether the program ended behind it at a place that its start could not reach, or could not have left."""
        if not self._deaths.again(one):
            return False
        self.over.add((one.event.source, one.event.line))
        return True

    def _executes_again(self, one: Hypothesis) -> bool:
        """Whether a batch system says behind it that the job runs again."""
        return any(line > one.event.line for line in self._executions.get(one.event.source, ()))

    @cached_property
    def _executions(self) -> dict[int, list[int]]:
        """source -> the lines where a batch system says that a job runs, or may run again, behind the first"""
        found: dict[int, list[int]] = {}
        known: set[tuple[int, str | None]] = set()
        for event in self.scene.evidence.events:
            if (said := _EXECUTES.search(event.body)) is None:
                continue
            job = event.source, said["condor"] or said["released"] or said["pbs"]
            if job in known:
                found.setdefault(event.source, []).append(event.line)
            known.add(job)
        return found

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
