"""Two ends of one program that cannot be of one start, so that the program was started again between them.

Whoever got past an import, or past a line that Python could not read, did so with other files or in another environment.
This is asked only where nothing shows that several processes ran side by side. Else the second one may be another rank.
"""

from __future__ import annotations

from functools import cached_property

from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.tracebacks import Frame
from diagnose.diagnosis.weighing.scene import Scene

_AT_IMPORT = {"import_error", "syntax_error"}


class Deaths:
    """The ends of programs in one log, and where in their own file they stood then."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def again(self, one: Hypothesis) -> bool:
        """Whether the program ended behind it at another place, and one of the two places is an import that failed."""
        here = _place(one)
        if here is None or self._side_by_side:
            return False
        for other, there in self._places:
            if other.event.source != one.event.source or other.event.line <= one.event.line or there.path != here.path:
                continue
            if there.line != here.line and (other if there.line < here.line else one).reason in _AT_IMPORT:
                return True
        return False

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
