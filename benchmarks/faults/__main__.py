"""Faults that happen to real ranks, and whether the diagnosis names the first rank to go, and nobody else.

    python -m benchmarks.faults                       # 8 faults, 2, 4 and 8 ranks, three ways
    python -m benchmarks.faults --alone               # only without a launcher, which is far quicker

Each job trains over gloo on the processor. *launcher* has what torchrun says and what each rank prints, *ranks* only the
latter, of the same runs. *alone* has ranks that nobody ends when the first has gone. The exit status is 1 if an innocent
rank, or a node, was named.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.faults.launched import launch
from benchmarks.faults.named import Named, read
from benchmarks.faults.plan import Plan
from benchmarks.measure import table
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher

FAULTS = ("kill", "terminate", "segfault", "abort", "exception", "asynchronous", "stop", "hang")
"""those of ``rank``, which imports PyTorch"""


def plans(faults: Sequence[str], sizes: Sequence[int], seed: int) -> list[Plan]:
    """Each fault on each size; chance says on which rank."""
    dice = random.Random(seed)
    return [Plan(fault, ranks, dice.randrange(ranks)) for ranks in sizes for fault in faults]


def run_alone(chosen: Sequence[Plan], folder: Path) -> None:
    """All of them at once, each rank a fork of one program."""
    words = [sys.executable, "-m", "benchmarks.faults.alone", str(folder), *map(str, chosen)]
    subprocess.run(words, check=True, timeout=600)


def results(chosen: Sequence[Plan], folder: Path) -> Iterator[Named]:
    """What the diagnosis says of the logs in ``folder``."""
    matcher = Matcher(load(), reserved=EARLY)
    for plan in chosen:
        ways = {
            "alone": Path("alone", str(plan)),
            "launcher": Path("launched", str(plan)),
            "ranks": Path("launched", str(plan), "ranks"),
        }
        for how, where in ways.items():
            if (folder / where).is_dir():
                yield read(plan, how, folder / where, matcher)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="only ranks without a launcher")
    parser.add_argument("--keep", type=Path, help="an empty folder that keeps the logs")
    parser.add_argument("--read", type=Path, help="logs that --keep has kept, instead of new runs")
    given = parser.parse_args(arguments)
    chosen = plans(given.faults, given.sizes, given.seed)
    folder = given.read or given.keep or Path(tempfile.mkdtemp(prefix="diagnose-faults-"))
    try:
        if given.read is None:
            run_alone(chosen, folder / "alone")
            for plan in chosen if not given.alone else ():
                launch(plan, folder / "launched" / str(plan))
        found = list(results(chosen, folder))
    finally:
        if given.read is None and given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for one in found:
        if not one.right or one.innocent:
            print(f"{one.how:8} {one.plan}: {one.reason}, ranks {one.ranks}, nodes {one.nodes}, {one.action}")
    rows = []
    for how in dict.fromkeys(one.how for one in found):
        these = [one for one in found if one.how == how]
        right, wrong = sum(one.right for one in these), sum(one.innocent for one in these)
        rows.append((how, str(len(these)), f"{right}, {100 * right / len(these):.0f} %", str(wrong)))
    print(table(("logs", "jobs", "first rank right", "innocents named"), rows))
    return 1 if any(one.innocent for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
