"""What ran, and when -> where the time of the places went: loading, running the model, what failed, and waiting.

Each place is in one of these at any moment, so they add up to the places times how long it took. Metrics run beside the places.
How much of a trial was loading is not seen from outside: it counts as long as a trial without samples is believed to take.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.evaluate.estimates import Overheads


@dataclass(frozen=True, slots=True)
class Spent:
    """In seconds; all but the first are of all places, or of all metrics, together."""

    took_s: float
    loading_s: float
    inference_s: float
    metric_s: float
    failed_s: float
    waiting_s: float


def spent(spans: Iterable[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], over: Overheads, now: float) -> Spent:
    """``spans``: what ran. ``runs``: when coordinators began, and the places of each node then; the last one ends ``now``."""
    rows = sorted(spans, key=lambda row: row["begin"])
    begins = sorted(runs, key=lambda run: run["begin"])
    took = loading = inference = metric = failed = whole = 0.0
    for run, after in itertools.zip_longest(begins, begins[1:]):
        until = after["begin"] if after is not None else now
        own = [row for row in rows if run["begin"] <= row["begin"] < until]
        # A run that was killed did not say when. It did not work after the last piece that ended.
        end = now if after is None else max((row["end"] for row in own), default=run["begin"])
        took += end - run["begin"]
        whole += sum(run["places"].values()) * (end - run["begin"])
        for row in own:
            lasted = row["end"] - row["begin"]
            kind, shards = _parts(row["key"])
            if kind == "metric":
                metric += lasted
            elif kind == "load":  # the places of the node wait for it
                loading += lasted * run["places"].get(row["node"], 1)
            elif not row["well"]:
                failed += lasted
            else:
                before = min(lasted, over.start_s + over.prepare_s * shards)
                loading, inference = loading + before, inference + lasted - before
    return Spent(took, loading, inference, metric, failed, max(0.0, whole - loading - inference - failed))


def _parts(key: str) -> tuple[str, int]:
    """(kind, shards) of a piece of work."""
    kind, _, what = key.partition("/")
    return kind, what.count("+") + 1
