"""How much sooner are the scores of a checkpoint known? The planner against the plans that people use, with time made up.

The distributions are in ``World``; those that the Acme study (NSDI'24, section 4.2 and 6.2) gives are marked with [study], the
others are assumptions. The planner, the cuts and the dispatch are those of the product; only time is made up.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import MEASURED, Belief, Estimates, Overheads
from diagnose.evaluate.expectation import makespan, play
from diagnose.evaluate.planner import plan
from diagnose.evaluate.suite import DataSet, Metric, Node, Suite
from diagnose.evaluate.work import Piece


@dataclass(frozen=True, slots=True)
class World:
    """What is drawn for each seed."""

    datasets: int = 63  # [study]
    inference_median_s: float = 113.0
    """[study] HumanEval's trial of a 7B model takes 220 s: 29.5 % loading and preparing, 19 % the metric, the rest inference"""
    inference_sigma: float = 1.2
    metric_median_s: float = 42.0  # [study] HumanEval's
    metric_sigma: float = 1.0
    start_s: float = 15.0
    """imports and the set-up of a trial's process"""
    prepare_s: float = 15.0
    """read and tokenize the data set"""
    load_s: float = 35.0
    """the model from storage: with ``start_s`` and ``prepare_s`` these are the 65 s before inference [study]"""
    reload_s: float = 3.0
    """14 GB from shared memory to a GPU, with eight at a time"""
    noise: float = 0.1
    """spread of each piece of work about its mean"""
    judged: int = 0
    """data sets with a metric of 10 to 30 minutes, which a judge scores sample by sample"""
    judge_s: tuple[float, float] = (600.0, 1800.0)
    judge_at_once: int = 8
    splittable: float = 0.9
    """share of the data sets whose samples can be shared out, and of the metrics that score sample by sample"""
    places: int = 8
    processors: int = 64
    """of a node's, for metrics"""


LONG = World(judged=5)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One suite: how long everything takes in truth."""

    suite: Suite
    truth: Estimates


def draw(world: World, seed: int) -> Drawn:
    dice = random.Random(seed)
    datasets, trials, metrics = [], {}, {}
    for number in range(world.datasets):
        name = f"set{number}"
        samples = max(64, round(math.exp(dice.gauss(math.log(1000), 0.8))))
        inference = math.exp(dice.gauss(math.log(world.inference_median_s), world.inference_sigma))
        scoring = math.exp(dice.gauss(math.log(world.metric_median_s), world.metric_sigma))
        judged = number < world.judged
        if judged:
            scoring = dice.uniform(*world.judge_s)
        metric = Metric(
            "score",
            split=judged or dice.random() < world.splittable,
            at_once=world.judge_at_once if judged else None,
            processors=1 if judged else 4,
        )
        datasets.append(DataSet(name, samples, "run", metric, split=judged or dice.random() < world.splittable))
        trials[name] = Belief(inference / samples, MEASURED)
        metrics[name] = Belief(scoring / samples, MEASURED)
    dice.shuffle(datasets)
    over = Overheads(
        load_s=world.load_s,
        start_s=world.start_s + world.reload_s,
        prepare_s=world.prepare_s,
        metric_s=2.0,
    )
    return Drawn(Suite(tuple(datasets), joined=",", load="copy"), Estimates(trials, metrics, over))


def naive(world: World, drawn: Drawn, nodes: int, seed: int, *, longest_first: bool) -> float:
    """One trial for each data set, which loads the model from storage and scores on the GPU."""
    dice = random.Random(seed)
    truth = drawn.truth
    work = [(truth.trials[one.name].seconds + truth.metrics[one.name].seconds) * one.samples for one in drawn.suite.datasets]
    dice.shuffle(work)
    if longest_first:
        work.sort(reverse=True)
    free = [0.0] * (world.places * nodes)
    for takes in work:
        ends = free[0] + (world.start_s + world.load_s + world.prepare_s + takes) * math.exp(dice.gauss(0, world.noise))
        heapq.heapreplace(free, ends)
    return max(free)


def ours(world: World, drawn: Drawn, nodes: int, seed: int, *, wrong_by: float = 1.0) -> float:
    """The product's plan and dispatch, which know the priors only; ``wrong_by``: each is too long or too short by that."""
    dice = random.Random(seed)

    def off(beliefs: dict[str, Belief]) -> dict[str, Belief]:
        spread = max(MEASURED, math.log(wrong_by))
        return {name: Belief(one.seconds * wrong_by ** dice.choice((-1, 1)), spread) for name, one in beliefs.items()}

    truth = drawn.truth
    known = Estimates(off(dict(truth.trials)), off(dict(truth.metrics)), truth.overheads)
    machines = [Node(f"node{number}", world.places, world.processors) for number in range(nodes)]
    found = plan(drawn.suite, known, machines)

    def seconds(piece: Piece, _: str, __: float) -> float:
        return truth.seconds(piece) * math.exp(dice.gauss(0, world.noise))

    return makespan(play(Dispatch(drawn.suite, machines, known, found.how), seconds))


def one_seed(world: World, nodes: int, seed: int) -> dict[str, float]:
    drawn = draw(world, seed)
    return {
        "random": naive(world, drawn, nodes, seed, longest_first=False),
        "longest": naive(world, drawn, nodes, seed, longest_first=True),
        "ours": ours(world, drawn, nodes, seed),
        "wrong": ours(world, drawn, nodes, seed, wrong_by=2.0),
    }


def simulate(seeds: int, each: Callable[..., Any] = map) -> list[dict[str, Any]]:
    """A row for each kind of suite and number of nodes."""
    rows = []
    for name, world in (("no long metrics", World()), ("five long metrics", LONG)):
        for nodes in (1, 4):
            found = list(each(functools.partial(one_seed, world, nodes), range(seeds)))
            rows.append({
                "suite": name,
                "nodes": nodes,
                "makespan_s": statistics.median(one["ours"] for one in found),
                "against random": _spread([one["random"] / one["ours"] for one in found]),
                "against longest first": _spread([one["longest"] / one["ours"] for one in found]),
                "priors wrong by two cost": _spread([one["wrong"] / one["ours"] - 1 for one in found]),
            })  # fmt: skip
    return rows


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, 5 %, 95 %)"""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| suite | nodes | makespan | against random order | against longest first | priors wrong by two cost |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        a, b, c = (row[name] for name in ("against random", "against longest first", "priors wrong by two cost"))
        lines.append(
            f"| {row['suite']} | {row['nodes']} | {row['makespan_s'] / 60:.0f} min | {a[0]:.2f} ({a[1]:.2f} to {a[2]:.2f}) "
            f"| {b[0]:.2f} ({b[1]:.2f} to {b[2]:.2f}) | {c[0]:.0%} ({c[1]:.0%} to {c[2]:.0%}) |"
        )
    return "\n".join(lines)
