"""Breaks a service in many ways while clients send, and compares it with what it had acknowledged.

    python -m benchmarks.campaign --rounds 200            # ten to forty minutes; a third of them on PostgreSQL

Prints what was done and what was lost. The exit status is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.campaign.faults import BY_HOOK, ON_POSTGRESQL, ON_SQLITE, Disk, Hook, Site
from benchmarks.campaign.rounds import Found, one
from tests.support.servers import Postgres, Server


def campaign(rounds: int, seed: int = 1, kinds: Sequence[str] = ("sqlite", "postgresql"), *, quiet: bool = True) -> Found:
    """All rounds: two thirds on SQLite where both databases are tried."""
    found = Found()
    share = {"sqlite": rounds} if kinds == ("sqlite",) else {"sqlite": rounds - rounds // 3, "postgresql": rounds // 3}
    numbers = itertools.count(seed * 10_000)
    for kind, count in share.items():
        folder = Path(tempfile.mkdtemp(prefix="diagnose-campaign-"))
        cluster = Postgres().start() if kind == "postgresql" else None
        disk = Disk(folder / "disk")
        try:
            found.add(_rounds(folder, disk, cluster, [next(numbers) for _ in range(count)], quiet))
        finally:
            disk.close()
            if cluster is not None:
                cluster.stop()
                cluster.remove()
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _rounds(folder: Path, disk: Disk, cluster: Postgres | None, numbers: Sequence[int], quiet: bool) -> Found:
    hook, raw = Hook(folder, disk.folder), disk.folder / "raw"
    words = ["--raw-logs", str(raw), *(["--database", cluster.database("campaign")] if cluster is not None else [])]
    more = {"DIAGNOSE_SERVE_FLUSH_S": "4", "DIAGNOSE_SERVE_RAW_WAIT_S": "1", "DIAGNOSE_SERVE_RAW_LEAVE_FREE": "32MiB"}
    server = Server(disk.folder / "data", *words, **more, **hook.environment)
    faults = dict(ON_SQLITE if cluster is None else ON_POSTGRESQL)
    if not hook.works:
        faults = {name: fault for name, fault in faults.items() if name not in BY_HOOK}
    if not disk.is_small:
        faults.pop("full_and_kill", None)
    order = [name for _ in range(len(numbers) // len(faults) + 1) for name in faults]
    random.Random(numbers[0]).shuffle(order)
    found = Found()
    with Site(server, disk, hook, raw, cluster) as site:
        for number, name in zip(numbers, order, strict=False):
            began = time.monotonic()
            now = one(site, number, name, faults[name])
            found.add(now)
            if not quiet:
                row = f"{number} {name}: {time.monotonic() - began:.1f} s, {now.acknowledged:,} bytes"
                print(row, *now.later, *now.wrong, sep="\n  ")
                sys.stdout.flush()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sqlite", action="store_true", help="only on SQLite")
    options = parser.parse_args()
    kinds = ("sqlite",) if options.sqlite else ("sqlite", "postgresql")
    found = campaign(options.rounds, options.seed, kinds, quiet=False)
    for name, count in sorted(found.rounds.items()):
        print(f"{name:14} {count}")
    print(f"{sum(found.rounds.values())} rounds, {found.acknowledged:,} bytes acknowledged, {found.lost:,} lost")
    print(f"raw logs gave up {found.given_up:,} bytes, told as gaps")
    for name, count in sorted(found.later.items()):
        print(f"{name}: {count}")
    print(f"flipped bits of the journal cost {found.records_hit} records, {found.told:,} bytes, all told")
    print(f"wrong: {len(found.wrong)}", *found.wrong, sep="\n  ")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
