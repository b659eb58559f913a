"""Pieces of work on all cores, each in its own process. A process begins as a copy of this one and inherits all that it
needs.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from diagnose.compression.kept_log import Compression
from diagnose.compression.workload import HEAD
from diagnose.errors import DiagnoseError
from diagnose.job import Job
from diagnose.rendering.terminal import Progress

T = TypeVar("T")
_work: Callable[[int], object]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(work: Callable[[int], T], count: int, processes: int) -> Iterator[T]:
    """``work(0)``, ``work(1)`` and so on, in this order, in at most so many processes at a time.

    Only Linux can copy a process that uses native libraries. Elsewhere, and for one process, all is done here.
    """
    if min(count, processes) < 2 or sys.platform != "linux":
        yield from map(work, range(count))
        return
    from concurrent.futures import ProcessPoolExecutor  # only where it is used: it takes a while to import
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(
        min(count, processes), mp_context=get_context("fork"), initializer=_begin, initargs=(work,)
    )  # fmt: skip
    try:
        yield from pool.map(cast("Callable[[int], T]", _one), range(count))
    except BrokenProcessPool:
        raise DiagnoseError(
            "a process that read logs was ended from outside", remedy="if memory was short, use fewer with --cores 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def read(job: Job, processes: int) -> None:
    """All sources of a job, each in a process of its own; the same comes out as if they were read one after the other."""
    from diagnose.compression import parts  # only where it is used

    _find_fingerprint(job)
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:

        def work(number: int) -> tuple[str | None, int]:
            source = job.sources[number]
            compression = Compression(job.compression.matcher, job.compression.folding)
            for chunk in source.chunks():
                compression.feed(number, chunk)
            compression.close(number)
            parts.write(compression, Path(folder, str(number)))
            return source.problem, source.bytes_read

        progress = Progress(job.id, sum(source.size or 0 for source in job.sources), "bytes")
        for number, (problem, bytes_read) in enumerate(each(work, len(job.sources), processes)):
            job.sources[number].problem, job.sources[number].bytes_read = problem, bytes_read
            parts.join(job.compression, Path(folder, str(number)))
            progress.at(sum(source.bytes_read for source in job.sources))
        progress.done()


def _find_fingerprint(job: Job) -> None:
    """Of the beginning of the job, as reading finds it: over as many sources as it takes."""
    first = Job(job.id, job.sources, job.compression.matcher)
    first.metadata = job.metadata
    for number, source in enumerate(job.sources):
        for chunk in replace(source).chunks():
            first.feed(number, chunk)
            if first.compression.counts.bytes_in >= HEAD:
                job.fingerprint = first.fingerprint
                first.compression.kept.close()
                return
        first.close(number)


def _begin(work: Callable[[int], object]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently


def _one(number: int) -> object:
    return _work(number)
