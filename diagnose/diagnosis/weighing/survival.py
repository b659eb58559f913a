"""Did the job go on after it?"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property

from diagnose.diagnosis.evidence import normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import level
from diagnose.diagnosis.weighing.recovery import Recovery
from diagnose.diagnosis.weighing.restarts import Restarts
from diagnose.diagnosis.weighing.retries import helped
from diagnose.diagnosis.weighing.scene import LAST_LINES, Scene
from diagnose.diagnosis.weighing.scripts import fails, went_past
from diagnose.diagnosis.weighing.soundness import Soundness, reached_end
from diagnose.diagnosis.weighing.speakers import by_kernel
from diagnose.diagnosis.weighing.talk import CALM, Talk
from diagnose.diagnosis.weighing.work import Work
from diagnose.reading.prefixes import clock, origin

_DEEP = {"hardware", "driver", "storage", "host", "scheduler", "network"}
_PATIENCE, _PATIENCE_DEEP, _PATIENCE_NUMBERS, _PATIENCE_ENDED = 2, 8, 20, 30
"""so many signs of progress after a fault mean that the job survived it: for most faults; for faults of machines; for odd
numbers; for what ended a process (other ranks may still have been on their way)
"""
_HELD_BACK = 8192
"""Python keeps so many bytes of its standard output back, if that goes into a file or a pipe"""
_WRITTEN_ON = 1000
"""more lines than a job prints while it is stopped"""
_LOGGED = re.compile(r"\W*+(?:[\w.]++ - )?ERROR\b")
_PROCESS = re.compile(r"\(\w+ pid=(\d+(?:, ip=[^)\s]+)?)[,)]")
"""how Ray names the process that printed a line, and its node: one that is started anew has another number"""
_SPEAKS_ON = 20
"""a logger that speaks so many lines later is no part of the end of its process"""
_BAR = re.compile(r"\d%\|")
_EARLY = re.compile(
    r"(?i)(?<!no )(?<!not )\bearly[ _-]?stopp(?:ing|ed)\b"
    r"(?: (?:was |is )?(?:triggered|activated|reached|met)\b| (?:at|after|in) (?:\w+ )?\d|[.!]{0,3}\W{0,3}$)"
    r"|(?<!not )\bstopp(?:ing|ed) (?:the )?(?:training )?early\b(?! (?:is|was|if|when|counter)\b)"
)
"""a program says that it stopped; not that it may, nor how long it still waits"""


class Survival:
    """Whether the job went on after a fault: in steps, in words, or in another run.

    ``known``: lines (as ``normal`` gives them) of runs that went well.
    """

    def __init__(self, scene: Scene, work: Work, known: Collection[str]) -> None:
        self.scene, self.work, self.known = scene, work, known
        self.of_earlier_runs: set[Hypothesis] = set()
        """what the job survived only by another run"""
        self.restarts, self.talk, self.recovery = Restarts(scene), Talk(scene, work), Recovery(scene)
        self._last_step_at: dict[int, float | None] = {}

    def judge(self, one: Hypothesis) -> None:
        """Give it the signals of what the job survived."""
        if one.detector is not None and one.kind != "dump":
            if one.detector.rose and self._stopped_early(one):
                one.signals["well_again"] = 1.0
                one.recovered = True
            return
        again = self.restarts.after(one)
        if again or self._speaks_on(one) or ((self._went_on(one) or self.work.goes_on(one)) and not self.flushed_behind(one)):
            one.signals["survived"] = 1.0
            if again:
                self.of_earlier_runs.add(one)
        elif self.talk.goes_on(one) or went_past(one, self.scene) or helped(one, self.scene) or self._others_wrote_on(one):
            one.signals["talked_on"] = 1.0
        elif self.recovery.follows(one):
            one.signals["well_again"] = 1.0
        if self.known and one.traceback is None and normal(one.event.body) in self.known:
            one.signals["known_good"] = 1.0
        caught = one.handled and (one.traceback is None or one.traceback.of_request or one.traceback.of_import)
        if caught and self.scene.ends[one.event.source] - one.event.line > LAST_LINES:
            one.ignored = True
        one.recovered = bool(one.signals) or one.ignored

    def _stopped_early(self, one: Hypothesis) -> bool:
        """Whether the program stopped by itself, because its loss fell no more: its best weights are from before the rise."""
        course = self.scene.courses[one.event.source]
        return any(
            event.source == one.event.source
            and event.line > one.event.line
            and _EARLY.search(event.body[:200]) is not None
            and course.steps_gained(event.line) <= 0
            and course.signs_after(event.line) < _PATIENCE
            for event in self.scene.evidence.events
        )

    def announced(self) -> None:
        """A logger's line of trouble is overcome with the exception that it announced."""
        handled = {
            said.order
            for one in self.scene.found.hypotheses
            if one.recovered and one.traceback is not None and (said := one.traceback.announced) is not None
        }
        for one in self.scene.found.hypotheses:
            if one.kind in ("line", "rule") and one.traceback is None and one.event.order in handled and not one.recovered:
                one.signals["talked_on"] = 1.0
                one.recovered = True

    def _went_on(self, one: Hypothesis) -> bool:
        course, line = self.scene.courses[one.event.source], one.event.line
        signs = max(course.signs_after(line), course.steps_gained(line))
        if signs < _PATIENCE or self._printed_late(one):
            return False
        return signs >= self._patience(one, anew=course.begins_anew(line))

    def _patience(self, one: Hypothesis, *, anew: bool) -> int:
        if self.scene.taxonomy.has(one.reason, "numbers"):
            return _PATIENCE_NUMBERS
        if one.ends_process and not anew:
            return _PATIENCE_ENDED
        layer = one.rule.layer if one.rule else "user"
        deep = one.fatal and not one.symptom and layer in _DEEP and not self.scene.taxonomy.has(one.reason, "stop")
        deep = deep and not anew  # no rank was on its way yet
        if (
            layer == "storage"
            and one.kind == "rule"
            and not by_kernel(one)
            and one.like.error
            and _LOGGED.match(one.event.body)
        ):
            deep = False  # the program caught it, logged it, and may do without that file
        return _PATIENCE_DEEP if deep else _PATIENCE

    def _printed_late(self, one: Hypothesis) -> bool:
        """Whether the clocks say that the progress after it in the log was made before it. One stream was then written late."""
        last = self._moment_of_progress(one.event.source)
        return last is not None and one.moment is not None and last < one.moment

    def flushed_behind(self, one: Hypothesis) -> bool:
        """Whether its process may have printed what stands behind it earlier.

        What Python still holds back of its standard output comes at the exit, behind the traceback of which it died. That is
        one buffer at most, and holds what was printed: loggers and progress bars hold nothing back. Where the work ended well,
        the job was started again.
        """
        source, line = one.event.source, one.event.line
        if one.traceback is None or not one.ends_process or not self._in_one_buffer(one):
            return False
        course = self.scene.courses[source]
        fell_back = course.step_at(line) is not None and course.begins_anew(line)
        return not (fell_back or self._logged(source) or self._done or reached_end(self.scene.log.progress(source).last))

    def _in_one_buffer(self, one: Hypothesis) -> bool:
        counts = self.scene.log.counts
        behind = self.scene.ends[one.event.source] - one.event.line
        return behind * counts.bytes_in / max(counts.lines_in, 1) <= _HELD_BACK

    @cached_property
    def _done(self) -> bool:
        """Whether the last lines say that something was completed, whatever failed before."""
        return Soundness(self.scene, self.work).says_done(())

    def _logged(self, source: int) -> bool:
        """Whether the lines of progress come from a logger or a progress bar."""
        last = self.scene.log.progress(source).last
        text = last.decode("utf-8", "replace")
        return bool(_BAR.search(text) or CALM.match(text) or origin(last).time)

    def _speaks_on(self, one: Hypothesis) -> bool:
        """Whether the process that raised it logs on much later, by its number: so it caught it."""
        if one.traceback is not None and one.traceback.from_top and not one.traceback.caught:
            return False  # nobody caught it in its own process: a child of the one that logs on
        if (one.fatal and one.traceback is None) or one.symptom or (found := _PROCESS.match(one.event.text)) is None:
            return False
        return self._speakers.get((one.event.source, found[1]), 0) - one.event.line >= _SPEAKS_ON

    @cached_property
    def _speakers(self) -> dict[tuple[int, str], int]:
        """(source, number of a process) -> the last line in which its logger speaks"""
        return {
            (event.source, found[1]): event.line
            for event in self.scene.evidence.events
            if (found := _PROCESS.match(event.text)) is not None and level(event.text) is not None
        }

    def _moment_of_progress(self, source: int) -> float | None:
        if source not in self._last_step_at:
            last = self.scene.log.progress(source).last
            time = origin(last).time if last else None
            self._last_step_at[source] = clock(time) if time else None
        return self._last_step_at[source]

    def _others_wrote_on(self, one: Hypothesis) -> bool:
        """Whether a scheduler stopped a run, and much was written after that without a failure.

        A scheduler ends processes within a minute. What is written for longer is of another run with the same file.
        """
        source, line = one.event.source, one.event.line
        by_scheduler = one.rule is not None and one.rule.layer == "scheduler" and one.kind == "rule"
        if not by_scheduler or not self.scene.taxonomy.has(one.reason, "stop") or self.scene.ends[source] - line < _WRITTEN_ON:
            return False
        return not any(
            fails(event, self.scene) for event in self.scene.evidence.events if event.source == source and event.line > line
        )
