"""The evaluation of checkpoints, measured.

python -m benchmarks.evaluation simulate [--seeds 200] [--json]    the plan against plain plans; see ``simulated``
python -m benchmarks.evaluation kill [--kills 50]                  kill -9 at random moments; see ``killed``
python -m benchmarks.evaluation kill --on ray [--kills 50]         the same on a real Ray cluster; see ``killed_ray``
python -m benchmarks.evaluation harness                            the real harness on Ray; see ``harness``
python -m benchmarks.evaluation compass --python PATH              the real OpenCompass; see ``compass``
python -m benchmarks.evaluation real [--nodes 4]                   the same with real work on Ray, as root; see ``real``
python -m benchmarks.evaluation ray [--nodes 4]                    makespans on a real Ray cluster; see ``slept``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.evaluation import killed, simulated
from benchmarks.evaluation.killed_ray import OnRay, cluster_of


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evaluation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("simulate", "kill", "harness", "compass", "ray", "real"))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--ways", default="random order,longest first,plan", help="of real: the plans that run")
    parser.add_argument("--folder", type=Path, help="of real: where the costs and what has run is kept; an empty one at first")
    parser.add_argument("--on", choices=("here", "ray"), default="here")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--python", default=sys.executable, help="of an environment that has OpenCompass")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.what == "kill":
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            arena = OnRay(stack.enter_context(cluster_of(arguments.nodes))) if arguments.on == "ray" else killed.Here()
            outcome = killed.campaign(Path(folder), arguments.kills, arena=arena)
        print(f"{sum(outcome.kills.values())} kills in {outcome.rounds} evaluations: {dict(outcome.kills)}")
        print(
            f"the same scores in {outcome.same_scores} of {outcome.rounds}; finished shards run again: {len(outcome.repeated)}"
        )
        return 0 if outcome.same_scores == outcome.rounds and not outcome.repeated else 1
    if arguments.what == "harness":
        from benchmarks.evaluation import harness

        with tempfile.TemporaryDirectory() as folder:
            found = harness.compare(Path(folder))
        print(", ".join(f"{name}: {value:.0f}" for name, value in found.items()))
        return 0 if found["identical"] == found["data sets"] else 1
    if arguments.what == "compass":
        from benchmarks.evaluation import compass

        with tempfile.TemporaryDirectory() as folder:
            same = compass.compare(arguments.python, Path(folder))
        print(", ".join(f"{name}: {'the same' if equal else 'different'}" for name, equal in same.items()))
        return 0 if all(same.values()) else 1
    if arguments.what == "real":
        from benchmarks.evaluation import real

        with tempfile.TemporaryDirectory() as made:
            kept = arguments.folder or Path(made)
            print(real.table(list(real.measured(kept, (arguments.nodes,), arguments.ways.split(",")))))
        return 0
    if arguments.what == "ray":
        from benchmarks.evaluation import slept

        print(slept.table([slept.measured(arguments.nodes)]))
        return 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = simulated.simulate(arguments.seeds, pool.map)
    print(json.dumps(rows) if arguments.json else simulated.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
