"""What metrics said about parts of a data set -> what they say about all of it.

A metric writes JSON: ``{"samples": 40, "scores": {"acc": 0.75}, "values": {"acc": [1, 0, 1, ...]}, "lower": ["ppl"]}``.
``values`` has a number for each sample, in their order. With it the mean is that of all samples, to the last digit. ``lower``
names the scores of which less is better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.evaluate.work import Shard

_MOST_BYTES = 256 << 20
_MOST_NAMES, _LONGEST_NAME = 200, 200


@dataclass(frozen=True, slots=True)
class Scores:
    """Of some samples of a data set."""

    shard: Shard
    scores: dict[str, float]
    values: dict[str, list[float]] = field(default_factory=dict)
    lower: frozenset[str] = frozenset()
    """scores of which less is better"""


def read(path: Path, shard: Shard) -> Scores:
    """What a metric wrote."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is larger than 256 MiB")
        given = json.loads(path.read_bytes())
        if not isinstance(given, dict) or not isinstance(given.get("scores"), dict):
            raise ValueError("it has no scores")
        scores = {_name(name): _number(value) for name, value in given["scores"].items()}
        values = {_name(name): [_number(one) for one in many] for name, many in dict(given.get("values") or {}).items()}
        if not scores or len(scores) > _MOST_NAMES:
            raise ValueError(f"it has {len(scores)} scores")
        said = given.get("samples", shard.count)
        if said != shard.count:
            raise ValueError(f"it is about {said} samples, not {shard.count}")
        for name, many in values.items():
            if len(many) != shard.count or name not in scores:
                raise ValueError(f"it has {len(many)} values of {name}, not {shard.count}, or no score of that name")
        lower = frozenset(_name(name) for name in given.get("lower") or ())
        if unknown := lower - set(scores):
            raise ValueError(f"lower names {min(unknown)!r}, and there is no score of that name")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        remedy = 'a metric writes {"scores": {"NAME": NUMBER}} to {scores}'
        raise DiagnoseError(f"no scores that can be used: {error}", where=str(path), remedy=remedy) from None
    return Scores(shard, scores, values, lower)


def merged(parts: Sequence[Scores]) -> Scores:
    """Of all samples of the parts. They must have scores of the same names."""
    ordered = sorted(parts, key=lambda one: one.shard)
    first, samples = ordered[0], sum(one.shard.count for one in ordered)
    for one in ordered:
        if set(one.scores) != set(first.scores):
            missing = ", ".join(sorted(set(one.scores) ^ set(first.scores)))
            raise DiagnoseError(f"not all parts of {first.shard.dataset} have a score {missing}", remedy="check its metric")
    scores, values = {}, {}
    for name in first.scores:
        if all(name in one.values for one in ordered):
            values[name] = [value for one in ordered for value in one.values[name]]
        if len(ordered) == 1:
            scores[name] = first.scores[name]
        elif name in values:
            scores[name] = math.fsum(values[name]) / samples
        else:
            scores[name] = math.fsum(one.scores[name] * one.shard.count for one in ordered) / samples
    return Scores(Shard(first.shard.dataset, first.shard.first, samples), scores, values, first.lower)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"{str(name)[:40]!r} is no name of a score")
    return name


def _number(value: Any) -> float:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return float(value)
