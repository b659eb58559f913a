"""Real ranks for the tests of checkpoints: processes that talk over gloo.

They come from a server process that has imported torch once. What they run must be a function of a module.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed.checkpoint", "diagnose.checkpoints.saving"])
_LONGEST_S = 60


def begin(count: int, folder: Path, work: Callable[..., Any], *words: Any) -> tuple[Sequence[BaseProcess], Any]:
    """Start ``work(rank, *words)`` on so many ranks, which meet in a file in ``folder``."""
    answers = CONTEXT.Queue()
    meeting = folder / f"meeting-{os.urandom(4).hex()}"
    ranks = [CONTEXT.Process(target=_rank, args=(rank, count, str(meeting), answers, work, words)) for rank in range(count)]
    for rank in ranks:
        rank.start()
    return ranks, answers


def on_ranks(count: int, folder: Path, work: Callable[..., Any], *words: Any, longest_s: float = _LONGEST_S) -> list[Any]:
    """What ``work`` gave on each rank. An error of one is an error here."""
    ranks, answers = begin(count, folder, work, *words)
    try:
        given: dict[int, Any] = {}
        while len(given) < count:
            rank, result, failed = answers.get(timeout=longest_s)
            assert failed is None, f"rank {rank}:\n{failed}"
            given[rank] = result
    finally:
        for process in ranks:
            process.join(20)
            process.kill()
    return [given[rank] for rank in range(count)]


def _rank(rank: int, count: int, meeting: str, answers: Any, work: Callable[..., Any], words: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
        result = work(rank, *words)
        answers.put((rank, result, None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, None, traceback.format_exc()))
