"""scores.json -> the service: the scores of a checkpoint, and what it took to know them.

What was told is noted beside it, so that what a service did not take while it was away is told later, and nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from diagnose.errors import DiagnoseError
from diagnose.evaluate import summary
from diagnose.evaluate.results import replace

_NAME = "told.json"


class Service(Protocol):
    """Whoever is told; ``diagnose.shipping.destination.Destination`` is one."""

    def scores(self, job: str, report: Mapping[str, object]) -> None:
        """One score."""

    def evaluated(self, job: str, report: Mapping[str, object]) -> None:
        """What it took."""


def tell(folder: Path, service: Service, job: str) -> str | None:
    """What is wrong, if the service did not take it. Try again later: it may be away, or the training has told nothing yet."""
    found = summary.read(folder)
    if found is None or found.get("at") is None or told(folder, job) == found["at"]:
        return None
    if not isinstance(found.get("step"), int):
        return f"{folder.name} has no step, so its scores cannot be told: the name of a checkpoint ends with its step"
    try:
        for report in reports(found):
            service.scores(job, report)
        service.evaluated(job, cost(found))
    except DiagnoseError as error:
        return f"the scores of {folder.name} were not taken: {error}"
    replace(folder / _NAME, json.dumps({"job": job, "at": found["at"]}))
    return None


def told(folder: Path, job: str) -> Any:
    """Which scores of this checkpoint the service has: when they were summed up."""
    try:
        said = json.loads((folder / _NAME).read_text())
        return said["at"] if said["job"] == job else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def reports(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each score."""
    for name, one in sorted(found["datasets"].items()):
        for score, value in sorted(one["scores"].items()):
            yield {
                "step": found["step"],
                "data_set": name,
                "metric": score,
                "score": value,
                "noise": one["noise"].get(score),
                "direction": "lower" if score in one["lower"] else "higher",
                "path": found["checkpoint"],
                "time": found.get("at"),
            }


def cost(found: dict[str, Any]) -> dict[str, Any]:
    """How long it took, and where the time went."""
    return {
        "step": found["step"],
        "path": found["checkpoint"],
        "data_sets": len(found["datasets"]),
        "missing": len(found["missing"]),
        "expected_s": found.get("expected_s"),
        **(found.get("spent") or {}),
        "time": found.get("at"),
    }
