"""What a failing job of ``failing`` costs in its scanner, step by step, without a server.

The figures come from a process of its own, whose packages are those of the commit that is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from benchmarks.carried.figures import Figures

T = TypeVar("T")
_ROOT = Path(__file__).resolve().parents[2]
_JOBS, _FIRST = 60, 5
"""jobs that are measured, and before them some that are not"""


def shares(tree: Path, piece: int) -> Figures:
    """Of the checkout in ``tree``; its own ``benchmarks`` are not asked."""
    from benchmarks.carried.figures import Figure
    from benchmarks.measure import Failed

    command = [sys.executable, "-P", __file__, str(piece)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tree)}, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr.strip()[-500:])
    return {f"shares: {what}": Figure(value, "ms of processor") for what, value in json.loads(done.stdout).items()}


def _spent(piece: int) -> dict[str, float]:
    """Each piece of a log is read, and after each one a report is made, as if it were the last one."""
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.packed import packed
    from diagnose.reading.sources import Source

    logs = [(_ROOT / "fixtures" / "logs" / name).read_bytes() for name in ("nvlink/gpu-11.log", "nvlink/gpu-12.log")]
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
            for at in range(0, len(own), piece):
                timed("to read a piece", job.feed, source, own[at : at + piece])
                report = timed("the next report" if pieces else "the first report", lambda job=job: job.report(running=True))
                timed("a snapshot", job.snapshot)
                timed("to pack a report", lambda report=report: packed(report.as_json().encode()))
                pieces += 1
    return {what: 1000 * took / times[what] for what, took in spent.items()}


if __name__ == "__main__":
    print(json.dumps(_spent(int(sys.argv[1]))))
