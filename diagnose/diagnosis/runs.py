"""The runs that one source holds, as several are appended to a file or a job is started anew: where each of them begins.

A program that is started again says again what it said first. So a run begins where the first lines of a source come again, in
their order. Folds know them, as they must keep what is new in each run (``_folds.h``). Where filters drop those lines, or the
file begins amid a run, what comes again behind failures tells it (``compression/starts.py``), if something ended there. A run
also begins where steps fall back to the beginning, and where a launcher or a scheduler said that the one before it was over.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.detectors.course import means
from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.matching.series import Series
from diagnose.reading.prefixes import clock

_FRESH: Final = 0.1
"""steps begin anew where one is so small a part of the last"""
_POINTS: Final = 3
_ROUNDS: Final = 2
"""epochs of one training begin anew more often than this, if it goes in rounds"""
_STEP_OVER: Final = re.compile(r"srun: Terminating (?:StepId=|job step )(?P<who>\d+)\.(?P<when>\w+)")
_AGENT_OVER: Final = "Root Cause (first observed failure):"
_SAID: Final = re.compile(r"\s*(?P<name>time|host)\s+: (?P<value>\S+)")
_BELOW: Final = 6
"""lines below the title of a launcher's summary in which its time and host stand"""
_JOB_OVER: Final = re.compile(r"slurmstepd: error: \*\*\* JOB (?P<who>\d+) ON \S+ CANCELLED AT (?P<when>[\dT:-]+)")
_ONE_BEGINNING: Final = 60
"""the first lines of a run stand in so many"""
_RUN_LINES: Final = 100
_RUN_S: Final = 120.0
"""so many lines are a run, whether it fails or not, and so is one of fewer lines that went on for so long by its clock"""


class Over(NamedTuple):
    """A launcher said that its whole run is over."""

    line: int
    who: str
    """the job of Slurm, or the host of torchrun's agent"""
    when: str
    """the step of the job, or the time of the failure"""


@dataclass(frozen=True, slots=True)
class Runs:
    """Where the runs of each source begin behind its first one."""

    starts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """source -> lines, of the latest runs; only those with more than one run"""
    counts: Mapping[int, int] = field(default_factory=dict)
    """source -> how many runs there are behind its first one"""

    @classmethod
    def among(cls, sources: int, log: Compression, found: Sequence[Hypothesis], events: Sequence[Event]) -> Runs:
        """A last run that has just begun, and in which nothing failed, does not count: it is not the answer."""
        failures: dict[int, list[int]] = {}
        over: dict[int, list[int]] = {}
        for one in found:
            fails = _fails(one) or shipped_taxonomy().has(one.reason, "stop")
            if fails:
                failures.setdefault(one.event.source, []).append(one.event.line)
            if fails or one.ends_process:
                over.setdefault(one.event.source, []).append(one.event.line)
        counted: dict[int, Sequence[int]] = {}
        counts: dict[int, int] = {}
        said: dict[int, list[Event]] | None = None
        for source in range(sources):
            count, starts = _starts(log, source, sorted(over.get(source, ())))
            if starts and said is None:
                said = _by_source(events)
            lines, heard = log.lines_of(source), said.get(source, ()) if said is not None else ()
            last = max(failures.get(source, ()), default=0)
            while starts and last < starts[-1] and _just_began(starts[-1], lines, heard):
                starts.pop()
                count -= 1
            if starts:
                counted[source] = starts
                counts[source] = count
        return cls(counted, counts)

    def last(self, source: int) -> int:
        """The line where the last run begins; 0 where there is one run only."""
        return self.starts[source][-1] if source in self.starts else 0

    @property
    def count(self) -> int:
        """The most runs of a source."""
        return 1 + max(self.counts.values(), default=0)

    @property
    def sentence(self) -> str:
        """What a person should know of them."""
        most = max(self.counts, key=self.counts.__getitem__)
        last = self.last(most)
        return f"The log holds {self.count:,} runs, as its first lines come again; the last one begins in line {last:,}."


def _starts(log: Compression, source: int, over: Sequence[int]) -> tuple[int, list[int]]:
    """(how many runs a source holds behind its first one, where the latest of them begin). ``over``: where something ended."""
    starts = log.runs(source)
    told, begins = log.begins(source)
    forgotten = max(log.run_count(source) - len(starts), told - len(begins))
    if forgotten and starts:
        begins = [begin for begin in begins if begin.line >= starts[0]]
    before = 0
    for begin, then in zip_longest(begins, begins[1:]):
        ended = bisect_right(over, begin.failure) > bisect_right(over, before)
        until = begin.line + _ONE_BEGINNING if then is None else min(begin.line + _ONE_BEGINNING, then.failure)
        since = begin.failure if begin.first else begin.failure - _ONE_BEGINNING  # it may have failed amid its first lines
        known = next((start for start in starts if since < start < until), None)
        if known is not None:
            starts[starts.index(known)] = min(known, begin.line)
        elif ended:
            insort(starts, begin.line)
        before = begin.line
    return forgotten + len(starts), starts


def _by_source(events: Iterable[Event]) -> dict[int, list[Event]]:
    said: dict[int, list[Event]] = {}
    for event in events:
        said.setdefault(event.source, []).append(event)
    return said


def _just_began(start: int, lines: int, events: Iterable[Event]) -> bool:
    if lines - start >= _RUN_LINES:
        return False
    times = (clock(one.time) for one in events if one.line >= start and one.time is not None)
    known = [time for time in times if time is not None]
    return not known or known[-1] - known[0] < _RUN_S


def _fails(one: Hypothesis) -> bool:
    return (one.fatal or one.ends_process) and not one.symptom


def last_start(steps: Series | None, losses: Series | None = None, epochs: Series | None = None, start: int = 0) -> int:
    """The line where the numbers of the last run begin; 0 where there is one run only, as far as they tell.

    ``start``: where its first lines stand. If steps go on there at a later one, the job went on from a checkpoint. Epochs
    count where the log tells no step.
    """
    counted = _counted(epochs) if steps is None else (steps.column("line"), steps.column("step"))
    if steps is None and _falls(counted[1]) > _ROUNDS:  # each is a round of one training, as of folds or of clients
        counted = (), ()
    return max(_fell_back(*counted), _other_program(losses), start if _falls_back_at(start, *counted) else 0)


def _falls(values: Sequence[float]) -> int:
    return sum(value <= _FRESH * last and value < last for last, value in pairwise(values))


def _counted(epochs: Series | None) -> tuple[Sequence[float], Sequence[float]]:
    """(line, epoch), as two columns."""
    if epochs is None:
        return (), ()
    places, values = means(epochs)
    lines = epochs.column("line")
    return [lines[place] for place in places], values


def _falls_back_at(start: int, lines: Sequence[float], values: Sequence[float]) -> bool:
    behind = next((at for at, line in enumerate(lines) if line >= start), len(values))
    return behind == len(values) or (behind > 0 and values[behind] < values[behind - 1])


def _other_program(losses: Series | None) -> int:
    """The line from which on each loss is told with its step, where none was before: another program prints them."""
    if losses is None:
        return 0
    lines, steps = losses.column("line"), losses.column("step")
    at = next((at for at, step in enumerate(steps) if step == step), 0)
    if at < _POINTS or len(steps) - at < _POINTS or any(step != step for step in steps[at:]):
        return 0
    return int(lines[at])


def _fell_back(lines: Sequence[float], values: Sequence[float]) -> int:
    """The line of the first step behind which no step falls back to the beginning; 0 where none ever did."""
    start, before = 0, values[0] if values else 0.0
    for at in range(1, len(values) - _POINTS):
        if values[at] <= _FRESH * before and values[at] < before:
            start, before = int(lines[at]), values[at]
        before = max(before, values[at])
    return start


def launched_again(events: Iterable[Event]) -> list[tuple[int, int]]:
    """(line where a run was over, line where the one after it was) of one source.

    Slurm says it once for each step, and so does torchrun's agent on each host. So if one of them says it again, there was
    another run. The steps of one job may be the stages of one run. A job is cancelled once, too.
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
        if (step := _STEP_OVER.match(event.body) or _JOB_OVER.match(event.body)) is not None:
            found.append(Over(event.line, step["who"], step["when"]))
        elif event.body.startswith(_AGENT_OVER):
            title, about = event.line, {}
        elif title and event.line - title <= _BELOW and (said := _SAID.match(event.body)) is not None:
            about[said["name"]] = said["value"]
            if len(about) == 2:
                found.append(Over(event.line, f"host {about['host']}", about["time"]))
                title = 0
    return found
