"""Hang: the job made no step for much longer than a step usually takes, until somebody stopped it.

A long checkpoint or evaluation that was announced gets more time. A log that just ends is not a hang: nobody knows what came
after.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.diagnosis.detectors.course import Anomaly, Course, duration

_LEAST_S = 900.0
_RHYTHMS = 20.0
_BUSY = 4.0


def find(course: Course) -> Iterator[Anomaly]:
    silence = course.silence
    if silence is None:
        return
    patience = max(_LEAST_S, _RHYTHMS * (silence.rhythm_s or 0.0)) * (_BUSY if silence.busy else 1.0)
    if silence.seconds < patience:
        return
    rhythm = f", where a step took {duration(silence.rhythm_s)}" if silence.rhythm_s else ""
    sentence = f"No progress for {duration(silence.seconds)} before the job was ended{rhythm}."
    yield Anomaly("hang", "hang", silence.source, silence.line, sentence)
