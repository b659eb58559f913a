"""People, Slurm and the service act at the same moment on a real Slurm cluster: is anything done twice, or against a person?

    python -m benchmarks.races --rounds 200            # 13 batches of 16 jobs, half a minute to two minutes each

Needs Slurm's daemons, and root. The exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.races.rounds import BY_MACHINE, NODES, Batch, Found
from tests.support.slurm import Slurm


def races(rounds: int, seed: int, *, nodes: tuple[str, ...] = NODES, minutes: float = 600, told: bool = False) -> Found:
    """As many batches as give so many rounds, or as fit into the time."""
    folder = Path(tempfile.mkdtemp(prefix="diagnose-races-", dir="/tmp"))
    folder.chmod(0o755)
    cluster, found, began = Slurm(nodes, more=lambda _: ["MinJobAge=86400"]), Found(), time.monotonic()
    try:
        cluster.start()
        number = 0
        while sum(found.rounds.values()) < rounds and time.monotonic() - began < 60 * minutes:
            machine = BY_MACHINE[(seed + number) % len(BY_MACHINE)]
            now = Batch(cluster, folder / str(number), 1000 * seed + number, machine).play()
            found.add(now)
            number += 1
            if told:
                print(f"batch {number}, {machine}: {time.monotonic() - began:.0f} s", *now.wrong, sep="\n  ", flush=True)
    finally:
        cluster.stop()
        if not found.wrong:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600, help="no new batch after so many")
    given = parser.parse_args()
    found = races(given.rounds, given.seed, minutes=given.minutes, told=True)
    for name, count in sorted(found.rounds.items()):
        print(f"{name:36} {count:4}, the person's word was taken in {found.took[name]}")
    print(f"{sum(found.rounds.values())} rounds, {found.restarts} restarts, {found.drained} nodes drained")
    print(f"wrong: {len(found.wrong)}", *found.wrong, sep="\n  ")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
