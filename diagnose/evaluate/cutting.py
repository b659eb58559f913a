"""Samples that are left -> the trial that a free place takes, and the pieces in which outputs are scored.

One rule balances the places: whoever is free takes its share of what is left, divided by ``shares``. Trials are long at first,
which keeps the cost of starting them low, and short at the end, so that all places end together. A trial of that length is a
part of a long data set, or several short ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from diagnose.evaluate.estimates import Estimates
from diagnose.evaluate.suite import DataSet, Suite
from diagnose.evaluate.work import Scoring, Shard, Trial

Order = Literal["whole", "path"]
_PROBE = 16
"""the part of an unknown data set that is tried first"""
_SLACK = 1.25
"""a trial may be longer by this, if that ends a data set"""
_LONG_TAIL = 0.25
"""a data set whose metric takes longer than this share of a trial has its trial alone: its metric should begin at once"""


@dataclass(frozen=True, slots=True)
class Cut:
    """How work is cut and ordered."""

    shares: float
    """what is left is taken as if there were so many times the places"""
    least_s: float
    """a trial is not made shorter than this by cutting"""
    scoring_s: float
    """a metric that can be split takes no longer than this"""
    order: Order = "whole"
    """first what takes longest with its metric; *path*: as if what can be split took no longer than one trial"""


def urgency(dataset: DataSet, count: int, estimates: Estimates, how: Cut, limit_s: float) -> float:
    """How long a data set goes on at least if it starts now. ``count``: samples that are left."""
    takes = estimates.trials[dataset.name].seconds * count
    if how.order == "path" and dataset.split:
        takes = min(takes, limit_s)
    return takes + tail_s(dataset, estimates, how)


def take(
    suite: Suite,
    estimates: Estimates,
    left: Mapping[str, list[Shard]],
    places: int,
    how: Cut,
    alone: AbstractSet[str],
    untried: AbstractSet[str],
) -> Trial | None:
    """The next trial. ``left``: the samples of each data set that no trial has begun; ``alone``: data sets that share none;
    ``untried``: those of which nothing is known.
    """
    datasets = [one for one in suite.datasets if left.get(one.name)]
    if not datasets:
        return None
    counts = {one.name: sum(shard.count for shard in left[one.name]) for one in datasets}
    for one in datasets:
        if one.name in untried and one.split and one.samples > 1:
            first = left[one.name][0]
            return Trial((Shard(one.name, first.first, min(first.count, max(1, one.samples // _PROBE))),))
    work = sum(estimates.trials[one.name].seconds * counts[one.name] for one in datasets)
    limit = max(work / (max(places, 1) * how.shares), how.least_s)
    datasets.sort(key=lambda one: -urgency(one, counts[one.name], estimates, how, limit))
    return Trial(tuple(_filled(suite, datasets, left, estimates, how, limit, alone)))


def _filled(
    suite: Suite,
    datasets: list[DataSet],
    left: Mapping[str, list[Shard]],
    estimates: Estimates,
    how: Cut,
    limit_s: float,
    alone: AbstractSet[str],
) -> Iterable[Shard]:
    first = datasets[0]
    room = limit_s
    for dataset in datasets:
        if dataset is not first and (_apart(dataset, estimates, how, limit_s, alone) or dataset.trial != first.trial):
            continue
        each = estimates.trials[dataset.name].seconds
        shard = left[dataset.name][0]
        fits = each * shard.count <= room * _SLACK
        if fits or (dataset is first and not dataset.split):
            yield shard
            room -= each * shard.count + estimates.overheads.prepare_s
        elif dataset.split and room >= min(how.least_s, limit_s):
            yield Shard(dataset.name, shard.first, max(1, min(shard.count, round(room / each))))
            return
        if suite.joined is None or room <= 0 or _apart(first, estimates, how, limit_s, alone):
            return


def _apart(dataset: DataSet, estimates: Estimates, how: Cut, limit_s: float, alone: AbstractSet[str]) -> bool:
    return dataset.name in alone or dataset.name in estimates.unknown or tail_s(dataset, estimates, how) > limit_s * _LONG_TAIL


def scorings(dataset: DataSet, samples: Shard, estimates: Estimates, how: Cut) -> list[Scoring]:
    """The pieces in which these samples are scored."""
    if not dataset.metric.split:
        return [Scoring(samples)]
    takes = estimates.metrics[dataset.name].seconds * samples.count
    parts = max(1, min(math.ceil(takes / how.scoring_s), samples.count))
    edges = [samples.first + samples.count * part // parts for part in range(parts + 1)]
    return [Scoring(Shard(samples.dataset, at, after - at)) for at, after in itertools.pairwise(edges)]


def tail_s(dataset: DataSet, estimates: Estimates, how: Cut) -> float:
    """How long the metric goes on at least after the last trial of a data set."""
    whole = estimates.metrics[dataset.name].seconds * dataset.samples
    metric = dataset.metric
    if not metric.split:
        return whole
    return max(min(whole, how.scoring_s), whole / (metric.at_once or math.inf))
