"""Two ends of one program that cannot be of one start, so that the program was started again between them.

Whoever got past an import, or past a line that Python could not read, did so with other files or in another environment. But
two nodes may run the same file at once, and only one of them may lack a module. So there must be progress between the two
ends: the work had begun, which no node does alone. This is asked only where nothing shows that several processes ran side by
side, and not of an end that speaks of others.
"""

from __future__ import annotations

import re
from functools import cached_property

from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.tracebacks import Frame
from diagnose.diagnosis.weighing.scene import Scene

_AT_IMPORT = {"import_error", "syntax_error"}
_PROGRESS = 3
"""so many signs of progress stand between the two ends"""
_OTHERS = re.compile(
    r"(?i)\b(?:peers?|connect\w*|workers?|ranks?|nodes?|clients?|members?|world.size|rendezvous|barrier|sockets?|timed? ?out"
    r"|\w*store|nccl|gloo)\b"
)
"""whoever says so may miss the process that ended before it"""


class Deaths:
    """The ends of programs in one log, and where in their own file they stood then."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def again(self, one: Hypothesis) -> bool:
        """Whether the program ended behind it at another place, one of them is an import that failed, and it worked between."""
        here = _place(one)
        if here is None or self._side_by_side:
            return False
        for other, there in self._places:
            if other.event.source != one.event.source or other.event.line <= one.event.line or there.path != here.path:
                continue
            first = one if here.line < there.line else other  # the one that stood nearer to the beginning of the file
            if there.line == here.line or first.reason not in _AT_IMPORT or (first is one and _OTHERS.search(other.event.body)):
                continue
            if self._worked_between(one, other):
                return True
        return False

    def _worked_between(self, one: Hypothesis, other: Hypothesis) -> bool:
        course = self.scene.courses[one.event.source]
        begin = other.traceback.begin if other.traceback is not None else other.event.line
        return course.signs_after(one.event.line) - course.signs_after(begin) >= _PROGRESS

    @cached_property
    def _places(self) -> list[tuple[Hypothesis, Frame]]:
        return [(one, place) for one in self.scene.found.hypotheses if (place := _place(one)) is not None]

    @cached_property
    def _side_by_side(self) -> bool:
        """Whether ranks speak, or a launcher or scheduler reports how processes of its own ended."""
        return self.scene.ranks_speak or any(one.symptom and one.ends_process for one in self.scene.found.hypotheses)


def _place(one: Hypothesis) -> Frame | None:
    """Where the main program stood as it ended: the outermost frame that is none of Python's own."""
    if one.traceback is None or not one.ends_process:
        return None
    frame = next((frame for frame in one.traceback.frames if not frame.path.startswith("<frozen")), None)
    return frame if frame is not None and frame.function == "<module>" else None
