"""What hashing adds to a write: the same writer with and without it, in turns, to the disk with a sync."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.checkpoints import slow
from diagnose.checkpoints import hashes, stream, writer
from diagnose.checkpoints.hashes import FileHash

_MB = 1 << 20
_PAIRS = 7


def hashing(megabytes: int, rate_mb: float | None, folder: str | None) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    slow.RATE = rate_mb * _MB if rate_mb else None
    state = {str(n): torch.randn(8 * _MB // 4, 1) for n in range(megabytes // 8)}
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for number in range(_PAIRS + 1):
            for way, (hasher, look) in _WAYS.items():
                path = Path(name, way.replace(" ", "-"))
                with mock.patch.object(stream, "Hasher", hasher), mock.patch.object(writer, "not_finite", look):
                    once = _once(path, state)
                shutil.rmtree(path)
                if number:  # the first finds cold caches
                    took[way].append(once)
    for index, clock in enumerate(("time", "processor time")):
        speed = megabytes / statistics.median(one[index] for one in took["nothing"])
        print(f"{clock}: without either {speed:,.0f} MB/s")
        for way in ("hashing", "hashing and looking"):
            ratios = [a[index] / b[index] for a, b in zip(took[way], took["nothing"], strict=True)]
            print(f"  {way} adds {statistics.median(ratios) - 1:+.1%}", end=" ")
            print(f"({_PAIRS} pairs, {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})")


class _Counter:
    """In place of the hashes: only the place in the file."""

    def __init__(self) -> None:
        self.size = 0

    def update(self, data: memoryview) -> None:
        self.size += len(data)

    def done(self) -> FileHash:
        return FileHash(self.size, ())


def _no_look(plan: Any, planner: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (), ()


_WAYS: dict[str, tuple[Any, Any]] = {
    "nothing": (_Counter, _no_look),
    "hashing": (hashes.Hasher, _no_look),
    "hashing and looking": (hashes.Hasher, writer.not_finite),
}
"""looking: for what is no finite number"""


def _once(path: Path, state: dict[str, Any]) -> tuple[float, float]:
    begin, processor = time.monotonic(), time.process_time()
    save(state, storage_writer=writer.HashingWriter(path, 1, {}, slow.SlowHashingFiles()), no_dist=True)
    return time.monotonic() - begin, time.process_time() - processor
