"""Prints the table that compares engines: ``python -m benchmarks.compare``; README.md explains each figure."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # python benchmarks/compare.py
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.children import ours
from benchmarks.contenders import CACHE, RAW, build_raw
from benchmarks.measure import Failed, pin, run
from benchmarks.parts import sections


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        CACHE.mkdir(exist_ok=True)
        build_raw()
        core = pin(options.core)
        machine = about(core)
        if not options.json:
            print("\n".join(f"{name}: {value}" for name, value in machine.items()))
            print(
                f"Each child alone on one core, in turn, {options.repeats} repetitions. "
                "MB/s is 1e6 bytes a second of CPU time (user and system), median.\n"
                "A ratio is a speed over the speed of raw in the same repetition; "
                "raw is libhs from C, line by line, counting only."
            )
        found = {}
        for section in sections(options):
            found[section.title] = {"figures": section.data, "notes": section.notes}
            if not options.json:
                print(f"\n{section.text()}", flush=True)
    except Failed as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"machine": machine, "sections": found}, indent=1))
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("--mb", type=float, default=200, help="size of the mixed log (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int, help="the core to run on (default: the last that is allowed)")
    parser.add_argument("--styles", nargs="+", choices=("fragments", "full"), default=["fragments", "full"])
    parser.add_argument("--engines", nargs="+", choices=ours.ENGINES, default=list(ours.ENGINES))
    parser.add_argument("--no-mixed", action="store_true", help="leave out the mixed log")
    parser.add_argument("--no-peers", action="store_true", help="leave out rg, Drain3 and NVRx")
    parser.add_argument("--slow-mb", type=float, default=2, help="slice for the slow peers (default 2)")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="also each log of DIR, with the shipped rules")
    parser.add_argument("--corpus-mb", type=float, default=20, help="repeat smaller logs up to this size (default 20)")
    parser.add_argument("--passes", type=int, default=10, help="cold passes over each corpus log (default 10)")
    parser.add_argument("--growth", action="store_true", help="also 10 MB, 100 MB and 1 GB")
    parser.add_argument("--memory", action="store_true", help="also the peak memory")
    parser.add_argument("--stdin-mb", type=float, default=1000, help="for --memory (default 1000)")
    parser.add_argument("--follow-s", type=float, default=60, help="for --memory: how long to follow (default 60)")
    parser.add_argument("--startup", action="store_true", help="also the start-up time")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def about(core: int) -> dict[str, Any]:
    """The machine, and all versions."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    (CACHE / "one.patterns").write_text("0\t-\tx\n")
    (CACHE / "one.log").write_text("x\n")
    libhs = run([str(RAW), str(CACHE / "one.patterns"), str(CACHE / "one.log")]).told["libhs"]
    return {
        "machine": f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores, pinned to core {core}",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "libhs of raw": libhs,
        "diagnose": ours.version(),
        "hyperscan (wheel)": installed("hyperscan"),
        "rg": ripgrep_version(),
        "Drain3": installed("drain3"),
        "NVIDIA resiliency extension": installed("nvidia-resiliency-ext"),
    }


def installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def ripgrep_version() -> str:
    try:
        done = subprocess.run(["rg", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    return done.stdout.splitlines()[0].removeprefix("ripgrep ")


if __name__ == "__main__":
    sys.exit(main())
