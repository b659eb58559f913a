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

from diagnose.checkpoints import hashes, writer
from diagnose.checkpoints.hashes import FileHash

_MB = 1 << 20
_PAIRS = 7


def hashing(megabytes: int, folder: str | None) -> None:
    warnings.simplefilter("ignore")
    state = {str(n): torch.randn(8 * _MB // 4, 1) for n in range(megabytes // 8)}
    took: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for number in range(_PAIRS + 1):
            for which in ("with", "without"):
                path = Path(name, which)
                with mock.patch.object(writer, "Hasher", hashes.Hasher if which == "with" else _Counter):
                    once = _once(path, state)
                shutil.rmtree(path)
                if number:  # the first finds cold caches
                    took[which].append(once)
    for index, clock in enumerate(("time", "processor time")):
        ratios = [a[index] / b[index] for a, b in zip(took["with"], took["without"], strict=True)]
        speed = megabytes / statistics.median(one[index] for one in took["without"])
        print(
            f"{clock}: hashing and the look for what is no number add {statistics.median(ratios) - 1:+.1%} "
            f"(of {_PAIRS} pairs {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}); without: {speed:,.0f} MB/s"
        )


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


def _once(path: Path, state: dict[str, Any]) -> tuple[float, float]:
    with mock.patch.object(writer, "not_finite", writer.not_finite if path.name == "with" else _no_look):
        begin, processor = time.monotonic(), time.process_time()
        save(state, storage_writer=writer.HashingWriter(path, 1, {}), no_dist=True)
        return time.monotonic() - begin, time.process_time() - processor
