"""``python -m benchmarks.evaluation simulate [--seeds 200] [--json]``: the plan against plain plans; see ``simulated``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.evaluation import simulated


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("what", choices=("simulate",))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = simulated.simulate(arguments.seeds, pool.map)
    print(json.dumps(rows) if arguments.json else simulated.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
