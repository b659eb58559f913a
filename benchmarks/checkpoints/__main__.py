"""What checkpoints cost, and whether every damage is found. docs/checkpoints.md has the figures.

python -m benchmarks.checkpoints hashes      the hashes that Python has
python -m benchmarks.checkpoints reading     verify beside plain reads
python -m benchmarks.checkpoints hashing     what hashing adds to a write
python -m benchmarks.checkpoints standing    how long a training stands still; --ranks, --mb and --rate (MB/s) per rank, --how
python -m benchmarks.checkpoints kills       kill -9 and power cuts at random moments; --count
python -m benchmarks.checkpoints damages     changed bits, cut, missing and swapped files; --count
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

PARTS = ("hashes", "reading", "hashing", "standing", "kills", "damages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--mb", type=int, default=512, help="size of the state, of each rank for standing (default: 512)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--rate", type=float, help="MB/s that the storage takes per rank (default: as fast as the disk)")
    parser.add_argument("--saves", type=int, default=3, help="saves of each way (default: 3)")
    parser.add_argument("--count", type=int, help="kills (default: 300), or damages (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of kills and damages (default: 1)")
    parser.add_argument("--folder", help="where to write (default: the folder for temporary files)")
    parser.add_argument("--how", choices=("thread", "process"), default="thread", help="what writes behind the training")
    given = parser.parse_args()
    if given.how == "process" and given.rate:
        parser.error("the slow storage is not for a process of its own")
    work = {
        "hashes": lambda: _module("hashes").hashes(),
        "reading": lambda: _module("hashes").reading(given.mb, given.folder),
        "hashing": lambda: _module("hashing").hashing(given.mb, given.rate, given.folder),
        "standing": lambda: _module("standing").standing(
            given.mb, given.ranks, given.rate, given.saves, given.folder, given.how
        ),
        "kills": lambda: _module("kills").kills(given.count or 300, given.seed, given.folder),
        "damages": lambda: _module("damages").damages(given.count or 1000, given.seed, given.folder),
    }
    work[given.part]()


def _module(name: str) -> Any:
    """Only the part that runs: some import torch."""
    return importlib.import_module(f"benchmarks.checkpoints.{name}")


if __name__ == "__main__":
    main()
