"""Runs the parts, with another commit if one is named, and prints a table."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from benchmarks import carried
from benchmarks.carried.checkouts import checkout, unknown
from benchmarks.carried.figures import Figure, Figures
from benchmarks.carried.parts import PARTS
from benchmarks.carried.shares import shares
from benchmarks.measure import ROOT, Spread, table
from benchmarks.service import Bench
from tests.support.servers import Server

_MANY = {"DIAGNOSE_SERVE_MOST_LIVE": "100000"}


def measured(bench: Bench, part: str, options: argparse.Namespace, against: Path | None) -> list[dict[str, Figures]]:
    """Each repetition: what ``now`` found, and ``before`` if there is a checkout to compare with."""
    trees = {"now": ROOT} | ({"before": against} if against is not None else {})
    rounds = []
    for number in range(options.repeat):
        found: dict[str, Figures] = {}
        for name in list(trees) if number % 2 else reversed(trees):
            found[name] = shares(trees[name], options.piece) if part == "shares" else _served(bench, trees[name], part, options)
            print(f"{part} {number + 1}/{options.repeat} {name}", file=sys.stderr)
        rounds.append(found)
    return rounds


def _served(bench: Bench, tree: Path, part: str, options: argparse.Namespace) -> Figures:
    """What the part found with a server of ``tree``."""
    server = bench.server(PYTHONPATH=str(tree), **_MANY)
    for variable in unknown(tree, server.environment):
        del server.environment[variable]
    with server:
        return asyncio.run(_part(part, server, options))


async def _part(part: str, server: Server, options: argparse.Namespace) -> Figures:
    return await PARTS[part](server, options)


def rows(rounds: list[dict[str, Figures]]) -> list[list[str]]:
    """A row for each figure: now, before, and the ratio within each repetition; more than 1 is better."""
    told = []
    for name, figure in rounds[0]["now"].items():
        row = [f"{name} [{figure.unit}]" if figure.unit else name]
        row.append(Spread.of([one["now"][name].value for one in rounds]).text(2))
        if "before" in rounds[0]:
            row.append(Spread.of([one["before"][name].value for one in rounds]).text(2))
            row.append(Spread.of([_better(one["now"][name], one["before"][name]) for one in rounds]).text(2))
        told.append(row)
    return told


def _better(now: Figure, before: Figure) -> float:
    more, less = (now.value, before.value) if now.more_is_better else (before.value, now.value)
    return more / less if less else float("inf") if more else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=carried.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = [*PARTS, "shares"]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all if none is named")
    parser.add_argument("--against", metavar="COMMIT", help="also measure this commit, in turns")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000, help="stop has five times as many")
    parser.add_argument("--piece", type=int, default=8192, help="failing: bytes of one push")
    parser.add_argument("--mb", type=float, default=60, help="burst: size of the mixed log")
    parser.add_argument("--pushes", type=int, default=10_000, help="pushes: how many")
    parser.add_argument("--sources", type=int, default=20_000, help="sources: how many")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"{', '.join(sorted(unknown))} is no part: name some of {', '.join(parts)}")
    against = checkout(options.against) if options.against else None
    head = ["", "now", *(["before", "ratio"] if against else [])]
    for part in options.parts or parts:
        bench = Bench(options.database)
        try:
            print(table(head, rows(measured(bench, part, options, against))), flush=True)
        finally:
            bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
