"""How long a training stands still for a save, and how much longer its steps take while it is written.

Every rank has its own part of the state, as with FSDP, and takes steps all the time: a product of matrices, and an all-reduce.
The processor time is that of the rank beside its steps, without that of a process which writes for it.
The four ways take turns, so that what else runs on the machine hits all of them.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Literal, cast

from tests.diagnose.checkpoints.ranks import on_ranks

WAYS = ("torch.save", "dcp.save", "dcp.async_save", "ours", "bare", "nothing")
"""bare: the state is copied, and a thread writes the copy past the kernel's cache. No format, no hash, no look for what is no
number, nothing agreed between ranks: no checkpoint can cost less. nothing: no save, for as long as ours wrote. What it loses is
the noise of the machine, of which a long write gathers more."""
_MB = 1 << 20
_USUAL = 20
"""steps before each save, and after it, that say how long one takes"""


def standing(megabytes: int, ranks: int, rate_mb: float | None, saves: int, folder: str | None, writes: str) -> None:
    """``megabytes``: of each rank. ``writes``: a thread or a process, where it is ours."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        told = on_ranks(ranks, Path(name), _rank, name, megabytes, rate_mb, saves, writes, longest_s=1500)
    storage = f"{rate_mb:.0f} MB/s per rank" if rate_mb else "as fast as the disk"
    print(f"{ranks} ranks, {megabytes} MB each, storage {storage}, {saves} saves of each way after a first one, seconds:")
    # A step ends when all ranks have taken it, so the slowest rank says how long all stood.
    found = {way: [_slowest(told, way, number) for number in range(saves + 1)] for way in WAYS}
    for way in WAYS:
        first, rest = found[way][0], found[way][1:]
        stood, lost, whole, processor = (statistics.median(one[what] for one in rest) for what in rest[0])
        print(f"  {way:15} stood {stood:6.2f} (the first {first['stood']:5.2f}),", end=" ")
        print(f"lost step time {lost:6.2f}, complete after {whole:6.2f}, processor {processor:5.2f}")
    for what, other, goal in (("stood", WAYS[0], 0.10), ("stood", WAYS[2], 0.9), ("lost", WAYS[1], 0.5)):
        ratios = [a[what] / b[what] for a, b in zip(found["ours"][1:], found[other][1:], strict=True)]
        print(f"  ours / {other}, {what}: {statistics.median(ratios):.3f}", end=" ")
        print(f"({len(ratios)} pairs, {min(ratios):.3f} to {max(ratios):.3f}; the goal is {goal})")
    bound = [a["lost"] / b["lost"] for a, b in zip(found["bare"][1:], found[WAYS[1]][1:], strict=True)]
    print(f"  bare / {WAYS[1]}, lost: {statistics.median(bound):.3f} ({min(bound):.3f} to {max(bound):.3f})")
    print(json.dumps({"ranks": ranks, "mb": megabytes, "rate": rate_mb, "found": found}), flush=True)


def _slowest(told: list[dict[str, list[dict[str, float]]]], way: str, number: int) -> dict[str, float]:
    """Of all ranks: a step ends when all have taken it."""
    return {what: max(rank[way][number][what] for rank in told) for what in told[0][way][number]}


def _rank(
    rank: int, name: str, megabytes: int, rate_mb: float | None, saves: int, writes: Literal["thread", "process"]
) -> dict[str, list[dict[str, float]]]:
    import torch
    import torch.distributed as dist

    from benchmarks.checkpoints import slow
    from diagnose.checkpoints.saving import Checkpoints

    slow.RATE = rate_mb * _MB if rate_mb else None
    state = {f"rank{rank}.{n}": torch.randn(8 * _MB // 4, 1) for n in range(megabytes // 8)}
    a = torch.randn(700, 700)
    ours = Checkpoints(Path(name, "ours"), keep=1, thin=(), how=writes, files=slow.SlowHashingFiles)

    def step() -> float:
        begin = time.monotonic()
        for _ in range(4):
            torch.mm(a, a)
        dist.all_reduce(torch.zeros(1000))
        return time.monotonic() - begin

    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    how = _ways(rank, state, ours, lambda: found["ours"][-1]["whole"])
    for number in range(saves + 1):
        for way in WAYS:
            dist.barrier()
            before = statistics.mean(step() for _ in range(_USUAL))  # what is summed below is compared with a mean
            path = Path(name, way.replace(".", "-"), str(number + 1))
            path.parent.mkdir(exist_ok=True)
            dist.barrier()
            begin, processor = time.monotonic(), time.process_time()
            done = how[way](path)
            stood = time.monotonic() - begin
            own, during, over = time.thread_time(), [], torch.zeros(1)
            while not over[0]:
                during.append(step())
                over[0] = float(done())
                dist.all_reduce(over, dist.ReduceOp.MIN)
            whole = time.monotonic() - begin
            processor = time.process_time() - processor - (time.thread_time() - own)
            dist.barrier()
            usual = (before + statistics.mean(step() for _ in range(_USUAL))) / 2
            lost = stood + max(0.0, sum(during) - usual * len(during))
            found[way].append({"stood": stood, "lost": lost, "whole": whole, "processor": processor})
            dist.barrier()
            if rank == 0 and way != "ours":
                shutil.rmtree(path.parent)
                path.parent.mkdir()
            os.sync() if rank == 0 else None
    ours.close()
    return found


def _ways(
    rank: int, state: dict[str, Any], ours: Any, ours_took: Callable[[], float]
) -> dict[str, Callable[[Path], Callable[[], bool]]]:
    """How to save; each gives a function that says whether the checkpoint is complete."""
    import numpy
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_saver import async_save, save

    from benchmarks.checkpoints import slow
    from diagnose.checkpoints.hashes import give_way

    group = dist.new_group(backend="gloo")

    def by_torch(path: Path) -> Callable[[], bool]:
        with slow.SlowFile(path.with_suffix(f".{rank}.pt")) as file:
            torch.save(state, cast("IO[bytes]", file))
            os.fsync(file.fileno())
        return lambda: True

    def by_dcp(path: Path) -> Callable[[], bool]:
        save(state, storage_writer=slow.dcp_writer(path))
        return lambda: True

    def by_async(path: Path) -> Callable[[], bool]:
        future: Any = async_save(state, storage_writer=slow.dcp_writer(path), process_group=group, async_stager=stager())
        return lambda: bool(future.done())

    def stager() -> Any:
        """As async_save takes one itself if none is given; here its writer would else stage."""
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        return DefaultStager(StagingOptions(False, False, False, False))

    def by_us(path: Path) -> Callable[[], bool]:
        ours.save(int(path.name), state)
        saving = ours._saving
        assert saving is not None
        done: Callable[[], bool] = saving.future.done
        return done

    copies = {key: numpy.frombuffer(mmap.mmap(-1, one.nbytes), numpy.uint8) for key, one in state.items()}
    writer = ThreadPoolExecutor(1, initializer=give_way)

    def bare(path: Path) -> Callable[[], bool]:
        for key, one in state.items():
            numpy.copyto(copies[key], one.view(torch.uint8).numpy().reshape(-1))

        def write() -> None:
            file = slow.SlowFile(path.with_suffix(f".{rank}.bare"), past=True)
            with file:
                for copy in copies.values():
                    file.write(copy)
                os.fsync(file.fileno())

        done: Callable[[], bool] = writer.submit(write).done
        return done

    def by_nobody(path: Path) -> Callable[[], bool]:
        until = time.monotonic() + ours_took()
        return lambda: time.monotonic() > until

    return dict(zip(WAYS, (by_torch, by_dcp, by_async, by_us, bare, by_nobody), strict=True))
