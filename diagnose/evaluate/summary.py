"""The folder of an evaluation -> the scores of all data sets that are whole, what is missing and why, and what fell."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diagnose.checkpoints.found import step_of
from diagnose.errors import DiagnoseError
from diagnose.evaluate import falls, merging
from diagnose.evaluate.results import Results, replace
from diagnose.evaluate.work import Scoring

_EARLIER = 5
"""earlier checkpoints that a new one is compared with"""


def summary(results: Results, **more: Any) -> dict[str, Any]:
    """The scores with their noise, what stands in the way of the others, and what fell against checkpoints that were evaluated
    before. Also written to scores.json, with ``more``.
    """
    found: dict[str, Any] = {"schema": "diagnose.scores/1", "checkpoint": str(results.checkpoint), "step": results.step}
    found |= {"written": results.written_s, **more}
    left = {row["key"]: row for row in results.failures() if row.get("then") == "left"}
    scored = _scored(results)
    datasets, missing = {}, {}
    for one in results.suite.datasets:
        if one.name in scored:
            known = scored[one.name]
            noise = {name: falls.noise_of(values) for name, values in known.values.items()}
            datasets[one.name] = {
                "samples": one.samples, "scores": known.scores, "noise": noise, "lower": sorted(known.lower),
            }  # fmt: skip
        else:
            why = next((row for key, row in left.items() if key.split("/")[1:2] == [one.name]), None)
            missing[one.name] = {name: why[name] for name in ("reason", "summary", "log")} if why else None
    before = _before(results)
    fell = falls.falls(before, scored)
    found |= {"datasets": datasets, "missing": missing}
    found |= {"before": [one.checkpoint for one in before], "falls": [asdict(fall) for fall in fell]}
    replace(results.folder / "scores.json", json.dumps(found, indent=1) + "\n")
    return found


def read(folder: Path) -> dict[str, Any] | None:
    """What was written about the checkpoint of a folder; None if there is nothing that can be read."""
    try:
        found = json.loads((folder / "scores.json").read_text())
    except (OSError, ValueError, RecursionError):
        return None
    usable = isinstance(found, dict) and isinstance(found.get("datasets"), dict) and isinstance(found.get("missing"), dict)
    return found if usable else None


def _scored(results: Results) -> dict[str, merging.Scores]:
    """data set -> its scores, if all its samples have any."""
    done = [piece.shard for piece in results.done() if isinstance(piece, Scoring)]
    found = {}
    for one in results.suite.datasets:
        shards = sorted(shard for shard in done if shard.dataset == one.name)
        if sum(shard.count for shard in shards) == one.samples:
            found[one.name] = merging.merged([merging.read(results.scores(shard), shard) for shard in shards])
    return found


def _before(results: Results) -> list[falls.Earlier]:
    """The checkpoints of earlier steps that were evaluated, the nearest first. Those without a step: as they were evaluated."""
    own = results.folder / "scores.json"
    since = own.stat().st_mtime if own.exists() else float("inf")
    found = []
    for path in results.folder.parent.glob("*/scores.json"):
        step, at = step_of(path.parent), path.stat().st_mtime
        if path.parent == results.folder or (step is None) != (results.step is None):
            continue
        place = (float(step), at) if step is not None else (at, at)
        if place < ((float(results.step), float("-inf")) if results.step is not None else (since, since)):
            found.append((place, path.parent))
    nearest = [folder for _, folder in sorted(found, reverse=True)[:_EARLIER]]
    return [falls.Earlier(folder.name, _readable(folder, results)) for folder in nearest]


def _readable(folder: Path, results: Results) -> dict[str, merging.Scores]:
    """What lies there may be somebody else's: then there is no comparison, and no failure of this evaluation."""
    try:
        return _scored(Results(folder, results.suite, results.checkpoint.with_name(folder.name)))
    except DiagnoseError:
        return {}
