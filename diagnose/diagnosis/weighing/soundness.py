"""What says that nothing failed at all?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import heard, says_done
from diagnose.diagnosis.weighing.scene import LAST_LINES, Scene
from diagnose.diagnosis.weighing.work import Work

_LAST_SAID = 5
"""among so many last lines, one that says that something was completed counts"""
_QUOTED = re.compile(r"print\(|echo |logger?\.|f\"")
_OF = re.compile(rb"\b(\d+)/ *(\d+)\b")


class Soundness:
    """How a log looks in which nothing failed."""

    def __init__(self, scene: Scene, work: Work) -> None:
        self.scene, self.work = scene, work

    def judge(self, kinds: Sequence[Hypothesis]) -> Hypothesis:
        """The hypothesis that nothing failed, with its signals."""
        nothing = Hypothesis(
            Event(-1, 0, 0, "", -1, 0),
            None,
            "healthy",
            self.scene.taxonomy.depth("framework"),
            False,
            False,
            kind="healthy",
        )
        signals = nothing.signals
        signals["nothing_failed"] = 1.0
        standing = [one for one in kinds if not one.recovered]
        if self._ended_well(standing):
            signals["ended_well"] = 1.0
        moving = [source for source in range(len(self.scene.ends)) if self.scene.courses[source].signs_after(0)]
        if not moving and standing and all("worked_on" in one.signals for one in standing):
            signals["progress"] = 1.0
        elif not moving and not self.work.regular:
            signals["no_progress"] = 1.0
        elif moving and not any(one.detector is not None and one.detector.to_the_end for one in standing):
            after = all(self.scene.log.progress(one.event.source).last_line > one.event.line for one in standing)
            if after:
                signals["progress"] = 1.0
            if any(reached_end(self.scene.log.progress(source).last) for source in moving):
                signals["reached_end"] = 1.0
        if not self._is_excerpt() and not any("last_words" in one.signals or self._ended_it(one) for one in standing):
            signals["calm_end"] = 1.0
        if self.says_done(standing) and not any("detected" in one.signals for one in standing):
            signals["good_end"] = 1.0
        return nothing

    def _ended_it(self, one: Hypothesis) -> bool:
        """Whether a program died of it, and next to nothing follows."""
        return one.fatal and self.scene.ends[one.event.source] - one.event.line <= LAST_LINES

    def _is_excerpt(self) -> bool:
        """Whether the log is a few lines, most of them kept. They have no end of their own."""
        ends = self.scene.ends
        return max(ends, default=0) < 2 * LAST_LINES and 3 * len(self.scene.evidence.events) > 2 * sum(ends)

    def says_done(self, standing: Sequence[Hypothesis]) -> bool:
        """Whether one of the last lines of a source says that something was completed, and no known failure comes after it.

        A script that says goodbye does not know yet what its launcher is about to say of it.
        """
        known = [one.event for one in standing if one.kind != "line" and "warned" not in one.signals]
        for event in reversed(self.scene.evidence.events):
            if self.scene.ends[event.source] - event.line >= _LAST_SAID:
                continue
            if any(later.source == event.source and later.line > event.line for later in known):
                continue
            sound = heard(event.text, event.body)
            if says_done(event.body) and not sound.sounds and not _QUOTED.search(event.body):
                return True
        return False

    def _ended_well(self, standing: Sequence[Hypothesis]) -> bool:
        """Whether a line says that the job ended well, and no failure follows it.

        A program can say this only of its process. It cannot know that its numbers went wrong, such as a loss that rose and
        stayed.
        """
        if any("detected" in one.signals for one in standing):
            return False
        for well in self.scene.found.well:
            if self.scene.layer_of(well) != "framework":
                continue
            later = (one for one in standing if one.event.source == well.source and one.event.line > well.line)
            if not any(one.kind != "line" and "warned" not in one.signals for one in later):
                return True
        return False


def reached_end(progress: bytes) -> bool:
    """Whether a line of progress says that the last step was made, such as ``100/100``."""
    found = _OF.search(progress)
    return found is not None and found[1] == found[2] and int(found[1]) > 1
