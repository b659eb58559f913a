"""Whether the job had stood still for long when it was stopped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.diagnosis.candidates import detected
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Course, Silence
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.reading.prefixes import clock, origin

_SAVES = re.compile(r"(?i)sav(?:e|ing)|checkpoint|evaluat|validat")


def hang_before(kinds: Sequence[Hypothesis], scene: Scene) -> Hypothesis | None:
    """A hang, if the job had stood still for long when it was stopped."""
    stops = (
        one
        for one in kinds
        if scene.taxonomy.has(one.reason, "stop") and one.kind != "line" and not one.recovered and one.moment is not None
    )
    stop = next(stops, None)
    return None if stop is None else _silence_before(stop, scene)


def _silence_before(end: Hypothesis, scene: Scene) -> Hypothesis | None:
    last: tuple[float, int, int] | None = None
    rhythm: float | None = None
    for source in range(len(scene.evidence.sources)):
        progress = scene.log.progress(source)
        moments = [clock(time) if (time := origin(text).time) else None for text in (progress.first, progress.last)]
        began, at = moments
        if at is not None and (last is None or at > last[0]):
            last = at, source, progress.last_line
            found = scene.log.series("step")
            steps = found[1].count if found else 0
            rhythm = (at - began) / (steps - 1) if began is not None and steps > 1 else None
    if last is None or end.moment is None:
        return None
    at, source, line = last
    said = [e for e in scene.evidence.events if e.source == source and line < e.line < end.event.line and e.rule < 0]
    busy = any(_SAVES.search(e.text) for e in said)
    course = Course(silence=Silence(source, line, end.moment - at, rhythm, busy))
    return next((detected(anomaly, scene.evidence) for anomaly in findings(course) if anomaly.reason is not None), None)
