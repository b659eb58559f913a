"""The makespans of a plan and of the plain ones on a real Ray cluster, beside those of the simulation.

Simulated nodes of one Ray cluster share this machine, so pieces of work sleep instead of computing: one second for 40 s of a
suite as ``simulated`` draws it. All else is real: Ray, its scheduling and its processes, files, the coordinator. The plain
plans run through the same coordinator: a trial for each data set, which also loads the model and scores.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.evaluation.clusters import cluster
from benchmarks.evaluation.simulated import Drawn, World, draw
from diagnose.evaluate.coordinator import Coordinator
from diagnose.evaluate.cutting import Cut
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import Belief, Estimates, Overheads
from diagnose.evaluate.expectation import believed, makespan, play
from diagnose.evaluate.fleets.ray import Ray
from diagnose.evaluate.planner import plan
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import Results
from diagnose.evaluate.suite import Suite
from diagnose.evaluate.summary import summary

WORLD = World(datasets=24, places=2, processors=2)
_SCALE = 1 / 40
_SLEEP = """
import json, os, sys, time
kind, names, counts, to = sys.argv[1:]
times = json.load(open(os.path.join(os.path.dirname(__file__), kind + ".json")))
counted = zip(names.split(","), counts.split(","))
time.sleep(times["fixed"] + sum(times[name][0] + times[name][1] * int(count) for name, count in counted))
if kind == "metric":
    json.dump({"scores": {"acc": 0.5}}, open(to, "w"))
for name in names.split(",") if kind == "trial" else ():
    os.makedirs(os.path.join(to, name), exist_ok=True)
    open(os.path.join(to, name, "done"), "w").write("x")
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """On so many nodes: seconds of the plan, and of the plain ones; as it ran, and as it was simulated."""

    nodes: int
    took: dict[str, float]
    simulated: dict[str, float]


def measured(nodes: int, seed: int = 2) -> Measured:
    drawn = draw(WORLD, seed)
    took, simulated = {}, {}
    with cluster(nodes, WORLD.places, WORLD.processors):
        for way in ("random", "longest first", "plan"):
            with tempfile.TemporaryDirectory() as folder:
                took[way], simulated[way] = _run(way, drawn, nodes, seed, Path(folder))
    return Measured(nodes, took, simulated)


def table(rows: Sequence[Measured]) -> str:
    lines = ["| nodes | plan | measured | simulated | measured / simulated | times sooner than random, longest first |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        for way, took in row.took.items():
            ratio = took / row.simulated[way]
            gains = " ".join(f"{row.took[other] / took:.2f}" for other in ("random", "longest first")) if way == "plan" else ""
            lines.append(f"| {row.nodes} | {way} | {took:.1f} s | {row.simulated[way]:.1f} s | {ratio:.2f} | {gains} |")
    return "\n".join(lines)


def _run(way: str, drawn: Drawn, nodes: int, seed: int, folder: Path) -> tuple[float, float]:
    """(measured, simulated)"""
    fleet = Ray()
    machines = list(fleet.nodes())
    assert len(machines) == nodes
    suite, estimates = _scaled(drawn, folder, seed, plain=way != "plan")
    how = plan(suite, estimates, machines).how
    if way != "plan":  # whole data sets, in the order of the suite or of their length
        how = Cut(1.0, 1e9, 1e9)
        estimates = estimates if way == "longest first" else _alike(estimates, suite)
    truth = _scaled(drawn, folder, seed, plain=way != "plan")[1]
    simulated = makespan(play(Dispatch(suite, machines, estimates, how, adapts=False), believed(truth)))
    results, priors = Results(folder / "results", suite, folder / "ckpt"), Priors(folder / "priors.db", "x")
    dispatch = Dispatch(suite, machines, estimates, how, adapts=False)
    began = time.monotonic()
    Coordinator(results, fleet, dispatch, priors, 0, _say).run()
    took = time.monotonic() - began
    priors.close()
    assert len(summary(results)["datasets"]) == len(suite.datasets)
    return took, simulated


def _scaled(drawn: Drawn, folder: Path, seed: int, *, plain: bool) -> tuple[Suite, Estimates]:
    """The suite with commands that sleep. In a plain plan a trial also loads and scores, and nothing is left for the metric."""
    over, world = drawn.truth.overheads, WORLD
    scale = _SCALE
    own = Overheads(over.load_s * scale, over.start_s * scale, over.prepare_s * scale, over.metric_s * scale)
    if plain:
        own = Overheads(0, (world.start_s + world.load_s) * scale, over.prepare_s * scale, 0)
    trial_s = {name: one.seconds * scale for name, one in drawn.truth.trials.items()}
    metric_s = {name: one.seconds * scale for name, one in drawn.truth.metrics.items()}
    if plain:
        trial_s = {name: one + metric_s[name] for name, one in trial_s.items()}
        metric_s = dict.fromkeys(metric_s, 1e-9)
    (folder / "sleep.py").write_text(_SLEEP)
    (folder / "ckpt").mkdir(exist_ok=True)
    trials = {"fixed": own.start_s, **{name: [own.prepare_s, one] for name, one in trial_s.items()}}
    metrics = {"fixed": own.metric_s, **{name: [0, one] for name, one in metric_s.items()}}
    (folder / "trial.json").write_text(json.dumps(trials))
    (folder / "metric.json").write_text(json.dumps(metrics))
    run = f"{sys.executable} -S {folder}/sleep.py"
    datasets = [
        replace(
            one,
            trial=f"{run} trial {{dataset}} {{count}} {{outputs}}",
            metric=replace(one.metric, command=f"{run} metric {{dataset}} {{count}} {{scores}}", processors=1),
            split=one.split and not plain,
        )
        for one in drawn.suite.datasets
    ]
    random.Random(seed).shuffle(datasets)
    beliefs = [{name: Belief(one, 0.25) for name, one in many.items()} for many in (trial_s, metric_s)]
    if plain:
        datasets = [replace(one, metric=replace(one.metric, split=False)) for one in datasets]
    return Suite(tuple(datasets), None if plain else ","), Estimates(beliefs[0], beliefs[1], own)


def _alike(estimates: Estimates, suite: Suite) -> Estimates:
    """All data sets as if they took the same time, so that their order is that of the suite."""
    trials = {one.name: Belief(1 / one.samples, 0.25) for one in suite.datasets}
    return Estimates(trials, estimates.metrics, estimates.overheads)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
