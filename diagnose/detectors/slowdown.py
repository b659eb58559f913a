"""Slow-down: a step takes longer than it did. The job goes on, so this is told and not alarmed about."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.detectors.course import Anomaly, Course, mean, median

_FEWEST = 20
_SLOWER = 1.5


def find(course: Course) -> Iterator[Anomaly]:
    for name, inverse in (("step_time_s", False), ("tokens_per_s", True), ("samples_per_s", True)):
        if name not in course.series:
            continue
        source, series = course.series[name]
        buckets = [bucket for bucket in series.buckets if bucket.finite and mean(bucket) > 0]
        if len(buckets) < _FEWEST:
            continue
        values = [1 / mean(bucket) if inverse else mean(bucket) for bucket in buckets]
        quarter = len(values) // 4
        before, after = median(values[quarter : 3 * quarter]), median(values[-quarter:])
        if after > _SLOWER * before:
            first = buckets[-quarter]
            sentence = f"Steps take {after / before:.1f} times as long in the last quarter of the log as before."
            yield Anomaly("slowdown", None, source, first.line, sentence, first.step, series.last_step)
        return
