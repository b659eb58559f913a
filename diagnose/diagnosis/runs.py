"""The runs that one source holds: as several are appended to a file or a job is started anew: where the last one begins."""

from __future__ import annotations

from typing import Final

from diagnose.matching.series import Series

_FRESH: Final = 0.1
"""steps begin anew where one is so small a part of the last"""
_POINTS: Final = 3


def last_start(steps: Series | None) -> int:
    """The line of the first step behind which no step falls back to the beginning; 0 where none ever did."""
    if steps is None:
        return 0
    lines, values = steps.column("line"), steps.column("step")
    start, before = 0, values[0] if values else 0.0
    for at in range(1, len(values) - _POINTS):
        if values[at] <= _FRESH * before and values[at] < before:
            start, before = int(lines[at]), values[at]
        before = max(before, values[at])
    return start
