"""The link between the benchmark and the product. No other module of the comparison imports the product.

As a program it is the child that is timed: ``python -m benchmarks.children.ours ENGINE PASSES LOG [RULES]``. It feeds LOG in
chunks of 1 MiB to a job with an empty cache of verdicts, PASSES times, each time to a new job, and prints the sums as one JSON
object. The time runs from the first byte read to the last count: verdicts, counters, metrics, kept lines. ``setup_s`` is the
time to load rules, and to compile or load databases. ENGINE may end with "-without-folds": then nothing folds, and numbers that
no rule names are not looked for.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ENGINES = ("core", "core+wheel", "wheel", "plain")
CHUNK = 1 << 20
NO_FOLDS = "-without-folds"
REPLAY = (sys.executable, "-m", "diagnose", "replay")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A rule in the form that the other engines need."""

    text: str
    filter: bool
    confirm: bool
    """Hyperscan can only hold a superset of it"""


def patterns(rules: Path | None) -> list[Pattern]:
    """The rules under ``rules``, or the shipped ones."""
    from diagnose.knowledge.rules import load
    from diagnose.matching.shapes import needs_confirmation

    return [
        Pattern(rule.pattern, rule.family == "filters", needs_confirmation(rule.pattern))
        for rule in load([rules] if rules else None)
    ]


def version() -> str:
    import diagnose

    return diagnose.__version__


def main(arguments: list[str]) -> int:
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import find

    engine, passes, log, *folders = arguments
    folds, engine = not engine.endswith(NO_FOLDS), engine.removesuffix(NO_FOLDS)
    row = dict.fromkeys(("bytes", "lines", "kept_lines", "kept_bytes", "setup_s", "cpu_s", "wall_s"), 0.0)
    rules = load([Path(path) for path in folders] or None)
    for _ in range(int(passes)):
        begin = time.process_time()
        job = Job("benchmark", find([log]).sources, Matcher(rules, engine))  # type: ignore[arg-type]
        if not folds:
            job.compression.folding = None
        ready, clock = time.process_time(), time.monotonic()
        with open(log, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                job.feed(0, chunk)
        job.close(0)
        counts = job.compression.counts
        row["cpu_s"] += time.process_time() - ready
        row["wall_s"] += time.monotonic() - clock
        row["setup_s"] += ready - begin
        row["bytes"] += counts.bytes_in
        row["lines"] += counts.lines_in
        row["kept_lines"] += counts.lines_kept
        row["kept_bytes"] += counts.bytes_kept
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
