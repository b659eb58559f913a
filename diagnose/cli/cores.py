"""Pieces of work on all cores, each in its own process. A process begins as a copy of this one and inherits all that it
needs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from diagnose.errors import DiagnoseError

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


def _begin(work: Callable[[int], object]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently


def _one(number: int) -> object:
    return _work(number)
