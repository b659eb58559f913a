"""The makespans of a plan and of plain ones with real work on a real Ray cluster, beside those of the simulation.

A real model on processors, the real lm-evaluation-harness, data sets and metrics made here; nothing sleeps. The plain plans
have one trial for each data set: the harness run plainly, which loads the model and scores. The simulated nodes share this
machine, so each place, and each processor for metrics, is a slot of a fixed speed (``slots``): as on real nodes, it does not
get faster while others are idle.

How long data sets take follows ``simulated.World``: their inference and their metrics are the quantiles of its distributions
(``_WORK``), so nothing was drawn and chosen. What they cost is measured before, in processor time, of another checkpoint. The
random order is the one whose simulated makespan is the median of 101.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.evaluation import slots, tiny
from benchmarks.evaluation.clusters import cluster
from diagnose.evaluate.coordinator import Coordinator
from diagnose.evaluate.cutting import Cut
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import MEASURED, Belief, Estimates, Overheads
from diagnose.evaluate.expectation import believed, makespan, play
from diagnose.evaluate.planner import plan
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import Results
from diagnose.evaluate.suite import DataSet, Metric, Node, Suite
from diagnose.evaluate.summary import summary

WAYS = ("random order", "longest first", "plan")
_WORK: tuple[tuple[str, int, int], ...] = (
    ("complete", 215, 2),
    ("choice", 402, 8),
    ("choice", 26, 100),
    ("complete", 55, 167),
    ("choice", 74, 54),
    ("complete", 92, 18),
    ("choice", 97, 22),
    ("choice", 19, 264),
    ("choice", 44, 29),
    ("complete", 322, 51),
    ("complete", 20, 327),
    ("complete", 10, 92),
)
"""kind, samples, texts that each answer is compared with"""
_LAYERS, _WIDTH = 4, 256
_SPEEDS = {1: 0.46, 4: 0.115}
"""nodes -> processors of a slot; a node has two places and two processors for metrics"""
_PLACES = 2
_LOAD_S = 1.0
_ORDERS = 101
_CHECKS = '''
import random

WORDS = "node rank loss step gpu fan disk link heat clock queue shard red blue one two".split()


def distance(one, other):
    """Letters to change, add or leave out."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for at, its in enumerate(other, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (letter != its))
    return row[-1]


def nearest(answer, doc):
    """How like an answer is to the most like of many texts: what looks for copied texts does."""
    dice = random.Random(doc["question"])
    texts = (" ".join(dice.sample(WORDS, 4)) for _ in range(doc["texts"]))
    return max((1 - distance(answer, text) / max(len(answer), len(text)) for text in texts), default=0.0)


def choice(doc, results):
    said = max(range(len(results)), key=lambda number: results[number][0])
    return {"acc": float(said == doc["answer"]), "nearest": nearest(doc["choices"][said], doc)}


def complete(doc, results):
    return {"exact_match": float(results[0].strip() == doc["choices"][doc["answer"]]), "nearest": nearest(results[0][:32], doc)}
'''
_PLAIN = """
import json, os, sys, lm_eval
from lm_eval.tasks import TaskManager
checkpoint, folder, task, out = sys.argv[1:]
found = lm_eval.simple_evaluate(model="hf", model_args="pretrained=" + checkpoint, tasks=[task], batch_size=1, device="cpu",
    bootstrap_iters=0, task_manager=TaskManager(include_path=folder, include_defaults=False))["results"][task]
scores = {name: value for name, value in found.items() if "," in name and "_stderr" not in name}
json.dump({"scores": scores}, open(os.path.join(out, "scores.json"), "w"))
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds."""

    start_s: float
    prepare_s: float
    trial_s: dict[str, float]
    """of all samples, without start and preparation"""
    score_s: dict[str, float]
    """of the process of a metric"""

    @property
    def metric_s(self) -> float:
        """Of a metric's process, whatever it scores: the cheapest metric costs nearly nothing."""
        return min(self.score_s.values())

    def planned(self, suite: Suite, speed: float) -> Estimates:
        trials = {one.name: Belief(self.trial_s[one.name] / speed / one.samples, MEASURED) for one in suite.datasets}
        scores = {one.name: self.score_s[one.name] - self.metric_s for one in suite.datasets}
        metrics = {one.name: Belief(max(scores[one.name], 1e-3) / speed / one.samples, MEASURED) for one in suite.datasets}
        over = Overheads(_LOAD_S, self.start_s / speed, self.prepare_s / speed, self.metric_s / speed)
        return Estimates(trials, metrics, over)

    def plain(self, suite: Suite, speed: float) -> Estimates:
        whole = {name: self.trial_s[name] + self.score_s[name] - self.metric_s for name in self.trial_s}
        trials = {one.name: Belief(whole[one.name] / speed / one.samples, MEASURED) for one in suite.datasets}
        metrics = {one.name: Belief(1e-9, MEASURED) for one in suite.datasets}
        return Estimates(trials, metrics, Overheads(0, self.start_s / speed, self.prepare_s / speed, 0.05))


@dataclass(frozen=True, slots=True)
class Row:
    nodes: int
    way: str
    took_s: float
    simulated_s: float
    identical: int
    """data sets with the scores of the harness run plainly"""


def write(folder: Path) -> None:
    """Two checkpoints, and the tasks of the harness."""
    for seed, name in enumerate(("before", "ckpt"), 1):
        tiny.write_model(folder / name, layers=_LAYERS, width=_WIDTH, seed=seed)
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "checks.py").write_text(_CHECKS)
    (folder / "plain.py").write_text(_PLAIN)
    for number, (kind, samples, texts) in enumerate(_WORK):
        tiny.write_task(tasks, f"made{number}", kind, samples, number, texts=texts)


def measured(folder: Path, nodes: Sequence[int], ways: Sequence[str]) -> Iterator[Row]:
    with slots.heavy("diagnose-evaluation") as group:
        os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
        os.environ["HF_HOME"] = str(folder / "hf")
        costs = costs_of(folder, group)
        plainly: dict[str, Any] = {}
        for many in nodes:
            slots.make(folder / "slots", group, dict.fromkeys(("place", "processor"), _PLACES * many), _SPEEDS[many])
            with cluster(many, _PLACES, _PLACES):
                for way in ways:
                    took, simulated, found = _run(folder, way, many, costs)
                    if way != "plan":
                        plainly = found
                    same = sum(found[name] == plainly.get(name) for name in found)
                    yield Row(many, way, took, simulated, same)


def costs_of(folder: Path, group: Path) -> Costs:
    """Of the checkpoint before, measured, or read if that was done. In slots, too: they make work take more processor time."""
    known = folder / "costs.json"
    if not known.exists():
        slots.make(folder / "slots", group, {"place": 2, "processor": 2}, _SPEEDS[1])
        known.write_text(json.dumps(_measure(folder)))
    return Costs(**json.loads(known.read_text()))


def _measure(folder: Path) -> dict[str, Any]:
    sizes = {f"made{number}": samples for number, (_, samples, _) in enumerate(_WORK)}
    names = list(sizes)

    def cost(kind: str, command: str) -> float:
        began = time.time()
        subprocess.run(command.split(), check=True, capture_output=True, cwd=Path(__file__).parents[2])
        rows = [json.loads(line) for line in (folder / "slots" / "ledger").read_text().splitlines()]
        words = command.split()[5:]
        return float(next(row["cpu_s"] for row in reversed(rows) if row["command"] == words and row["at"] >= began))

    def trial(tasks: Sequence[str], shards: Sequence[str]) -> float:
        out = folder / "before-trials" / "+".join(tasks) / shards[0].replace(":", "-")
        given = {"checkpoint": folder / "before", "dataset": ",".join(tasks), "shard": ",".join(shards), "outputs": out}
        return cost("place", _commands(folder)[0].format(**given))

    def score(task: str) -> float:
        given = {"dataset": task, "outputs": folder / "before-trials" / task, "scores": folder / f"before-{task}.json"}
        return cost("processor", _commands(folder)[1].format(**given))

    least = min(names, key=lambda name: sizes[name])  # the harness prepares a whole data set, however few samples are asked for
    trial([least], ["0:1"])  # what comes first finds nothing in the page cache
    with ThreadPoolExecutor(2) as pool:
        alone = pool.submit(trial, [least], ["0:1"])
        all_ = pool.submit(trial, names, ["0:1"] * len(names))
        trials = list(pool.map(lambda name: trial([name], [f"0:{sizes[name]}"]), names))
        scores = list(pool.map(score, names))
    prepare = max((all_.result() - alone.result()) / (len(names) - 1), 0.0)
    start = alone.result() - prepare
    return {
        "start_s": start,
        "prepare_s": prepare,
        "trial_s": {name: max(took - start - prepare, 0.01) for name, took in zip(names, trials, strict=True)},
        "score_s": dict(zip(names, scores, strict=True)),
    }


def _commands(folder: Path) -> tuple[str, str]:
    """The trial and the metric of the product's plan."""
    slot = f"{sys.executable} -S {slots.__file__} {folder}/slots"
    adapter = f"{sys.executable} -m diagnose.evaluate.adapters.lm_eval"
    tasks = f"--include-path {folder}/tasks"
    infer = f"infer --checkpoint {{checkpoint}} --tasks {{dataset}} --shards {{shard}} --out {{outputs}} {tasks} --device cpu"
    score = f"score --tasks {{dataset}} --outputs {{outputs}} --to {{scores}} {tasks}"
    return f"{slot} place {adapter} {infer}", f"{slot} processor {adapter} {score}"


def suite_of(folder: Path, *, plain: bool) -> Suite:
    trial, metric = _commands(folder)
    if plain:
        slot = f"{sys.executable} -S {slots.__file__} {folder}/slots"
        trial = f"{slot} place {sys.executable} {folder}/plain.py {{checkpoint}} {folder}/tasks {{dataset}} {{outputs}}"
        metric = "cp {outputs}/0-{count}/scores.json {scores}"
    datasets = [
        DataSet(f"made{number}", samples, trial, Metric(metric), split=not plain)
        for number, (_, samples, _) in enumerate(_WORK)
    ]
    return Suite(tuple(datasets), None if plain else ",", "none" if plain else "copy")


def prepared(
    folder: Path, way: str, machines: Sequence[Node], costs: Costs, speed: float
) -> tuple[Suite, Estimates, Cut, float]:
    """What runs, and how long that takes in the simulation."""
    suite = suite_of(folder, plain=way != "plan")
    if way == "plan":
        estimates = costs.planned(suite, speed)
        found = plan(suite, estimates, machines)
        return suite, estimates, found.how, found.expected_s
    truth, whole = costs.plain(suite, speed), Cut(1.0, 1e9, 1e9)

    def simulated(estimates: Estimates) -> float:
        return makespan(play(Dispatch(suite, machines, estimates, whole, adapts=False), believed(truth)))

    if way == "longest first":
        return suite, truth, whole, simulated(truth)
    orders = sorted((simulated(_in_order(suite, truth, seed)), seed) for seed in range(_ORDERS))
    takes, seed = orders[_ORDERS // 2]
    return suite, _in_order(suite, truth, seed), whole, takes


def _in_order(suite: Suite, truth: Estimates, seed: int) -> Estimates:
    """As if each data set took a second longer than the next, so that they begin in this order."""
    order = list(suite.datasets)
    random.Random(seed).shuffle(order)
    return replace(truth, trials={one.name: Belief((number + 1) / one.samples, MEASURED) for number, one in enumerate(order)})


def _run(folder: Path, way: str, nodes: int, costs: Costs) -> tuple[float, float, dict[str, Any]]:
    """(measured, simulated, scores)"""
    from diagnose.evaluate.fleets.ray import Ray

    fleet = Ray()
    machines = list(fleet.nodes())
    assert len(machines) == nodes
    suite, estimates, how, simulated = prepared(folder, way, machines, costs, _SPEEDS[nodes])
    into = folder / f"{way} {nodes}".replace(" ", "-")
    results, priors = Results(into, suite, folder / "ckpt"), Priors(folder / "priors.db", "x")
    began = time.monotonic()
    Coordinator(results, fleet, Dispatch(suite, machines, estimates, how, adapts=way == "plan"), priors, 0, _say).run()
    took = time.monotonic() - began
    priors.close()
    found = {name: one["scores"] for name, one in summary(results)["datasets"].items()}
    assert len(found) == len(suite.datasets)
    return took, simulated, found


def table(rows: Sequence[Row]) -> str:
    lines = ["| nodes | plan | measured | simulated | measured / simulated | times sooner than random, longest first |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    took = {(row.nodes, row.way): row.took_s for row in rows}
    for row in rows:
        others = [took[row.nodes, way] for way in WAYS[:2] if (row.nodes, way) in took]
        gains = ", ".join(f"{other / row.took_s:.2f}" for other in others) if row.way == "plan" else ""
        ratio = row.took_s / row.simulated_s
        lines.append(f"| {row.nodes} | {row.way} | {row.took_s:.0f} s | {row.simulated_s:.0f} s | {ratio:.2f} | {gains} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
