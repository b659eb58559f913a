"""How much sooner is ``diagnose replay`` done on all cores than on one?

    python -m benchmarks.cores [--mb 256 --large-mb 2048]

Two inputs are made of the mixed training log: a folder of 8 files of one job, and one large file. Each is read with
``--cores 1`` and with all cores, in turns; both print the same report, which is checked. Printed are the shortest time by the
clock of each, the processor time, and how many times sooner all cores were done. Asked: 1.7 times on two cores.

The clock needs a calm machine: *had* says how many cores the second run really got.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import table
from benchmarks.mixed.log import Log

_FILES = 8


class Run(NamedTuple):
    clock_s: float
    cpu_s: float
    printed: bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=256, help="of each of the eight files")
    parser.add_argument("--large-mb", type=int, default=2048, help="of the large file")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows, worst = [], float("inf")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        for told, path in _inputs(Path(name), given.mb, given.large_mb):
            runs = [(replayed(path, 1), replayed(path, cores)) for _ in range(given.repeats)]
            if any(one.printed != many.printed for one, many in runs):
                raise SystemExit(f"{told}: {cores} cores print another report than one")
            one, many = (min((pair[at] for pair in runs), key=lambda run: run.clock_s) for at in (0, 1))
            ratio = one.clock_s / many.clock_s
            worst = min(worst, ratio)
            seconds = (f"{value:.1f}" for value in (one.clock_s, one.cpu_s, many.clock_s, many.cpu_s))
            rows.append((told, *seconds, f"{many.cpu_s / many.clock_s:.2f}", f"{ratio:.2f}"))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    heads = ("input", "one core: clock s", "CPU s", f"{cores} cores: clock s", "CPU s", "had", "times sooner")
    print(table(heads, rows))
    return 0 if worst >= 1.7 else 1


def _inputs(folder: Path, mb: int, large_mb: int) -> list[tuple[str, Path]]:
    job = folder / "job"
    job.mkdir()
    for rank in range(_FILES):
        _write(job / f"rank{rank}.log", mb, seed=rank + 1)
    large = folder / "large.log"
    _write(large, large_mb, seed=99)
    return [(f"{_FILES} files of {mb} MB, one job", job), (f"one file of {large_mb:,} MB", large)]


def _write(path: Path, mb: int, seed: int) -> None:
    """A log of that size; from 64 MB on it repeats itself, as making it takes longer than reading it."""
    piece = b"".join(Log(seed).blocks(min(mb, 64) << 20))
    with path.open("wb") as file:
        left = mb << 20
        while left > 0:
            file.write(piece[:left])
            left -= len(piece)


def replayed(path: Path, cores: int) -> Run:
    """One run, and what it printed."""
    words = [sys.executable, "-m", "diagnose", "replay", str(path), "--together", "--json", "--cores", str(cores)]
    with tempfile.TemporaryFile() as printed:
        began = time.monotonic()
        process = subprocess.Popen(words, stdout=printed)
        _, status, used = os.wait4(process.pid, 0)
        took = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 3):
            raise SystemExit(f"diagnose replay ended with {process.returncode}")
        printed.seek(0)
        return Run(took, used.ru_utime + used.ru_stime, printed.read())


if __name__ == "__main__":
    sys.exit(main())
