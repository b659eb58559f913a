"""What a failing job of ``failing`` costs in its scanner, step by step: in this process, without a server."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks.carried.figures import Figure, Figures
from benchmarks.measure import ROOT
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import Matcher
from diagnose.reading.sources import Source
from service.store.diagnoses import packed
from tests.support.servers import Server

T = TypeVar("T")
_JOBS, _FIRST = 60, 5
"""jobs that are measured, and before them some that are not"""


async def shares(_: Server, options: argparse.Namespace) -> Figures:
    """Each piece of a log is read, and after each one a report is made, as if it were the last one."""
    logs = [(ROOT / "fixtures" / "logs" / name).read_bytes() for name in ("nvlink/gpu-11.log", "nvlink/gpu-12.log")]
    spent: Counter[str] = Counter()
    times: Counter[str] = Counter()

    def timed(what: str, work: Callable[..., T], *given: Any) -> T:
        began = time.thread_time()
        done = work(*given)
        spent[what] += time.thread_time() - began  # type: ignore[assignment]
        times[what] += 1
        return done

    matcher = Matcher(load())
    for number in range(_FIRST + _JOBS):
        if number == _FIRST:
            spent.clear()
            times.clear()
        job = Job(f"doomed-{number}", [Source(name, None) for name in ("s0", "s1")], matcher, 3)
        pieces = 0
        for source, log in enumerate(logs):
            own = log.replace(b"gpu-1", b"gpu-%04d-" % number)
            for at in range(0, len(own), options.piece):
                timed("to read a piece", job.feed, source, own[at : at + options.piece])
                report = timed("the next report" if pieces else "the first report", lambda job=job: job.report(running=True))
                timed("a snapshot", job.snapshot)
                timed("to pack a report", lambda report=report: packed(report.as_json().encode()))
                pieces += 1
    return {f"shares: {what}": Figure(1000 * took / times[what], "ms of processor") for what, took in spent.items()}
