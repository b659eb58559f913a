"""How long pieces of work take: what is believed of each data set, and how a measurement changes it.

A trial takes ``start_s`` (the process, its imports, the model), and for each of its shards ``prepare_s`` (the data set) and a
time per sample. Beliefs are the logarithm of the time per sample with a spread, because times are wrong by factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from diagnose.evaluate.suite import Suite
from diagnose.evaluate.work import Load, Piece, Scoring, Trial

MEASURED, TOLD, UNKNOWN = 0.25, 0.7, 1.2
"""spread (of the natural logarithm) of what was measured before, of what a person said, and of what nobody knows"""
_NOISE = 0.15
"""spread of one measurement"""
SHARED_NOISE = 0.5
"""of a trial of several data sets: it does not say which of them was longer than believed"""
_SHORTEST_S = 1e-4
_COMMON = 4
"""so many measurements make what they have in common count half"""
_DEFAULT_TRIAL_S, _DEFAULT_METRIC_S = 300.0, 20.0


@dataclass(frozen=True, slots=True)
class Belief:
    """A time, and how sure it is."""

    seconds: float
    spread: float

    def given(self, measured_s: float, noise: float = _NOISE) -> Belief:
        """What is believed after a measurement: both, weighed by how sure they are."""
        own, new = 1 / self.spread**2, 1 / noise**2
        middle = (own * math.log(max(self.seconds, _SHORTEST_S)) + new * math.log(max(measured_s, _SHORTEST_S))) / (own + new)
        return Belief(math.exp(middle), (own + new) ** -0.5)


@dataclass(frozen=True, slots=True)
class Overheads:
    """What does not depend on the data set."""

    load_s: float = 10.0
    """the model into the memory of a node"""
    start_s: float = 20.0
    """of a trial, until it reads its first data set"""
    prepare_s: float = 5.0
    """of each shard of a trial"""
    metric_s: float = 1.0
    """of a metric's process"""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of all data sets of a suite."""

    trials: Mapping[str, Belief]
    """data set -> seconds per sample"""
    metrics: Mapping[str, Belief]
    overheads: Overheads = field(default_factory=Overheads)
    unknown: frozenset[str] = frozenset()
    """data sets of which nothing is known: a short trial comes first"""

    def seconds(self, piece: Piece) -> float:
        """How long it will probably take."""
        over = self.overheads
        match piece:
            case Load():
                return over.load_s
            case Trial():
                samples = sum(self.trials[one.dataset].seconds * one.count for one in piece.shards)
                return over.start_s + over.prepare_s * len(piece.shards) + samples
            case Scoring():
                return over.metric_s + self.metrics[piece.shard.dataset].seconds * piece.shard.count

    def after(self, piece: Piece, took_s: float) -> Estimates:
        """What is believed once this piece took so long."""
        over = self.overheads
        if isinstance(piece, Trial):
            believed = sum(self.trials[one.dataset].seconds * one.count for one in piece.shards)
            took = max(took_s - over.start_s - over.prepare_s * len(piece.shards), took_s * 0.05)
            noise = _NOISE if len(piece.shards) == 1 else SHARED_NOISE
            names = {one.dataset for one in piece.shards}
            now = {name: self.trials[name].given(self.trials[name].seconds * took / believed, noise) for name in names}
            return replace(self, trials={**self.trials, **now}, unknown=self.unknown - names)
        if isinstance(piece, Scoring):
            shard = piece.shard
            rate = max(took_s - over.metric_s, took_s * 0.05) / shard.count
            return replace(self, metrics={**self.metrics, shard.dataset: self.metrics[shard.dataset].given(rate)})
        return self

    def scaled(self, names: Iterable[str], factors: Iterable[float]) -> Estimates:
        """With what others turned out to be, against what was believed of them: a faster machine is faster for all."""
        logs = sorted(math.log(factor) for factor in factors)
        if not logs:
            return self
        common = math.exp(logs[len(logs) // 2] * len(logs) / (len(logs) + _COMMON))
        faster = {name: Belief(self.trials[name].seconds * common, self.trials[name].spread) for name in names}
        return replace(self, trials={**self.trials, **faster})


def expected(suite: Suite, known: Estimates | None = None) -> Estimates:
    """For every data set: what was measured, else what a person said, else what is usual of the others."""
    told = known or Estimates({}, {})
    trials, metrics, unknown = dict(told.trials), dict(told.metrics), set()
    usual_trial = _middle(trials[one.name].seconds * one.samples for one in suite.datasets if one.name in trials)
    usual_metric = _middle(metrics[one.name].seconds * one.samples for one in suite.datasets if one.name in metrics)
    for one in suite.datasets:
        if one.name not in trials:
            if one.trial_s is None:
                unknown.add(one.name)
            whole = one.trial_s if one.trial_s is not None else usual_trial or _DEFAULT_TRIAL_S
            trials[one.name] = Belief(whole / one.samples, UNKNOWN if one.trial_s is None else TOLD)
        if one.name not in metrics:
            whole = one.metric_s if one.metric_s is not None else usual_metric or _DEFAULT_METRIC_S
            metrics[one.name] = Belief(whole / one.samples, UNKNOWN if one.metric_s is None else TOLD)
    return Estimates(trials, metrics, told.overheads, frozenset(unknown))


def _middle(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
