"""Logs written as text -> what the diagnosis makes of them, with the shipped rules and through the whole path."""

from __future__ import annotations

import functools
import textwrap

from diagnose.compression.folds import KEEP
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.reading.sources import Source
from diagnose.report import Report

RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n{what}\n'
"""an exception that ended the program; ``what`` is its last line"""


@functools.cache
def shipped_matcher() -> Matcher:
    return Matcher(load(), reserved=EARLY)


def job_of(*texts: str, names: tuple[str, ...] = (), fold_after: int = KEEP) -> Job:
    """A job of one source a text."""
    sources = [Source(names[number] if names else f"log{number}", None) for number in range(len(texts))]
    job = Job("job", sources, shipped_matcher(), fold_after)
    for number, text in enumerate(texts):
        job.feed(number, textwrap.dedent(text).encode())
        job.close(number)
    return job


def report_of(*texts: str, names: tuple[str, ...] = ()) -> Report:
    return job_of(*texts, names=names).report()


def said(*texts: str, names: tuple[str, ...] = ()) -> tuple[str, int | None]:
    """(reason, line of the root cause)."""
    diagnosis = report_of(*texts, names=names).diagnosis
    return diagnosis.reason, diagnosis.root_cause.line if diagnosis.root_cause else None


def steps(first: int, last: int, loss: float = 2.0, clock: str = "") -> str:
    """Megatron's lines for these steps."""
    return "".join(
        f"{clock} iteration {n:8d}/  900000 | consumed samples: {n * 8:8d} | elapsed time per iteration (ms): 812.5 |"
        f" lm loss: {loss:.6E} |\n"
        for n in range(first, last + 1)
    )
