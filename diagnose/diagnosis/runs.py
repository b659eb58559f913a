"""The runs that one source holds: as several are appended to a file or a job is started anew: where the last one begins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from diagnose.diagnosis.evidence import Event
from diagnose.matching.series import Series

_FRESH: Final = 0.1
"""steps begin anew where one is so small a part of the last"""
_POINTS: Final = 3
_STEP_OVER: Final = re.compile(r"srun: Terminating (?:StepId=|job step )(?P<who>\d+)\.(?P<when>\w+)")
_AGENT_OVER: Final = "Root Cause (first observed failure):"
_SAID: Final = re.compile(r"\s*(?P<name>time|host)\s+: (?P<value>\S+)")
_BELOW: Final = 6
"""lines below the title of a launcher's summary in which its time and host stand"""


class Over(NamedTuple):
    """A launcher said that its whole run is over."""

    line: int
    who: str
    """the job of Slurm, or the host of torchrun's agent"""
    when: str
    """the step of the job, or the time of the failure"""


def last_start(steps: Series | None, losses: Series | None = None) -> int:
    """The line where the numbers of the last run begin; 0 where there is one run only, as far as they tell."""
    return max(_fell_back(steps), _other_program(losses))


def _other_program(losses: Series | None) -> int:
    """The line from which on each loss is told with its step, where none was before: another program prints them."""
    if losses is None:
        return 0
    lines, steps = losses.column("line"), losses.column("step")
    at = next((at for at, step in enumerate(steps) if step == step), 0)
    if at < _POINTS or len(steps) - at < _POINTS or any(step != step for step in steps[at:]):
        return 0
    return int(lines[at])


def _fell_back(steps: Series | None) -> int:
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


def launched_again(events: Iterable[Event]) -> list[tuple[int, int]]:
    """(line where a run was over, line where the one after it was) of one source.

    Slurm says it once for each step, and so does torchrun's agent on each host. So if one of them says it again, there was
    another run. The steps of one job may be the stages of one run.
    """
    said = _over(events)
    by_slurm = [one for one in said if one.who.isdigit()]
    again = [(one.line, then.line) for one, then in pairwise(by_slurm) if one.who != then.who or one.when == then.when]
    for host in dict.fromkeys(one.who for one in said if not one.who.isdigit()):
        by_agent = [one for one in said if one.who == host]
        again += [(one.line, then.line) for one, then in pairwise(by_agent) if one.when != then.when]
    return again


def _over(events: Iterable[Event]) -> list[Over]:
    found: list[Over] = []
    title = 0
    about: dict[str, str] = {}
    for event in events:
        if (step := _STEP_OVER.match(event.body)) is not None:
            found.append(Over(event.line, step["who"], step["when"]))
        elif event.body.startswith(_AGENT_OVER):
            title, about = event.line, {}
        elif title and event.line - title <= _BELOW and (said := _SAID.match(event.body)) is not None:
            about[said["name"]] = said["value"]
            if len(about) == 2:
                found.append(Over(event.line, f"host {about['host']}", about["time"]))
                title = 0
    return found
