"""Slow-down: steps take longer than they did. The job goes on, so this is mentioned and is not a failure."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.diagnosis.detectors.course import Anomaly, Course, means, median

_FEWEST = 20
_SLOWER = 1.5


def find(course: Course) -> Iterator[Anomaly]:
    for name, inverse in (("step_time_s", False), ("tokens_per_s", True), ("samples_per_s", True)):
        if name not in course.series:
            continue
        source, series = course.series[name]
        some = [(place, mean) for place, mean in zip(*means(series), strict=True) if mean > 0]
        if len(some) < _FEWEST:
            continue
        values = [1 / mean if inverse else mean for _, mean in some]
        quarter = len(values) // 4
        before, after = median(values[quarter : 3 * quarter]), median(values[-quarter:])
        if after > _SLOWER * before:
            first = series.bucket(some[-quarter][0])
            sentence = f"Steps take {after / before:.1f} times as long in the last quarter of the log as before."
            yield Anomaly("slowdown", None, source, first.line, sentence, first.step, series.last_step)
        return
