"""An evaluation of which something is killed with -9 at random moments: the coordinator, a piece of work, or the whole node.

Whatever is killed, the same command goes on. In the end the scores must be those of an evaluation that nobody disturbed, and no
shard whose outputs were in their place may have been run again. Trials and metrics are real processes; what they do is made up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from diagnose.evaluate.plan_file import read
from diagnose.evaluate.results import Results
from diagnose.evaluate.work import Scoring, Shard

TRIAL = """
import json, os, sys, time
ledger, datasets, firsts, counts, out = sys.argv[1:]
for name, first, count in zip(datasets.split(","), firsts.split(","), counts.split(",")):
    with open(ledger, "a") as file:
        file.write(json.dumps(["trials", name, int(first), int(count), time.time()]) + "\\n")
    os.makedirs(os.path.join(out, name))
    time.sleep(0.004 * int(count))
    answers = [(sample * 2654435761 >> 7) % 3 == 0 for sample in range(int(first), int(first) + int(count))]
    with open(os.path.join(out, name, "answers.json"), "w") as file:
        json.dump(answers, file)
"""
METRIC = """
import glob, json, os, sys, time
ledger, name, first, count, outputs, to = sys.argv[1:]
with open(ledger, "a") as file:
    file.write(json.dumps(["scores", name, int(first), int(count), time.time()]) + "\\n")
paths = glob.glob(os.path.join(outputs, "answers.json")) or glob.glob(os.path.join(outputs, "*", "answers.json"))
begins = {path: int(os.path.basename(os.path.dirname(path)).split("-")[0]) for path in paths}
answers = {begins[path] + at: one for path in paths for at, one in enumerate(json.load(open(path)))}
values = [float(answers[sample]) for sample in range(int(first), int(first) + int(count))]
time.sleep(0.002 * len(values))
json.dump({"scores": {"acc": sum(values) / len(values)}, "values": {"acc": values}}, open(to, "w"))
"""


class Arena(Protocol):
    """Where evaluations run, and who can be killed there."""

    who: Sequence[str]
    options: Sequence[str]
    """of the command"""

    def kill(self, who: str, process: subprocess.Popen[bytes], dice: random.Random) -> bool:
        """Whether somebody was killed."""


class Here:
    """This machine: all processes are below the coordinator."""

    who: Sequence[str] = ("coordinator", "piece", "node")
    options: Sequence[str] = ()

    def kill(self, who: str, process: subprocess.Popen[bytes], dice: random.Random) -> bool:
        below = below_of([process.pid])
        all_ = [process.pid, *below]
        return killed({"coordinator": [process.pid], "node": all_, "piece": dice.sample(below, min(1, len(below)))}[who])


def killed(victims: Iterable[int]) -> bool:
    found = list(victims)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    same_scores: int = 0
    repeated: list[str] = field(default_factory=list)
    """finished shards that were begun again"""


def write_plan(folder: Path, *, load: str = "copy") -> Path:
    """A plan of nine data sets: long, short and unknown ones, and metrics whole and in parts."""
    (folder / "trial.py").write_text(TRIAL)
    (folder / "metric.py").write_text(METRIC)
    (folder / "ckpt").mkdir()
    (folder / "ckpt" / "weights").write_bytes(os.urandom(1 << 20))
    ledger = folder / "ledger"
    metric = f"{sys.executable} {folder}/metric.py {ledger} {{dataset}} {{first}} {{count}} {{outputs}} {{scores}}"
    datasets = [
        {"name": f"set{number}", "samples": 60 + 70 * number, "metric": {"command": metric, "split": number % 2 == 0}}
        | ({"expected": {"trial": f"{0.3 * number + 0.2}s", "metric": "0.3s"}} if number % 4 else {})
        for number in range(9)
    ]
    plan = {
        "checkpoint": "ckpt",
        "priors": "priors.db",
        "joined": ",",
        "load": load,
        "retries": 3,
        "trial": f"{sys.executable} {folder}/trial.py {ledger} {{dataset}} {{first}} {{count}} {{outputs}}",
        "costs": {"load": "0.1s", "start": "0.1s", "prepare": "0.01s", "metric": "0.1s"},
        "nodes": [{"name": "here", "places": 3, "processors": 2}],
        "datasets": datasets,
    }
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan))  # JSON is YAML
    return path


def campaign(folder: Path, kills: int, seed: int = 0, arena: Arena | None = None) -> Outcome:
    """Evaluations one after the other, until so many kills hit."""
    outcome, dice, place = Outcome(), random.Random(seed), arena or Here()
    undisturbed = _scores(_evaluate(folder / "undisturbed", None, outcome, dice, Here()))
    while sum(outcome.kills.values()) < kills:
        outcome.rounds += 1
        here = folder / f"round{outcome.rounds}"
        _evaluate(here, kills - sum(outcome.kills.values()), outcome, dice, place)
        outcome.same_scores += _scores(here) == undisturbed
        sys.stderr.write(f"{outcome.rounds} evaluations, {dict(outcome.kills)}; the same scores in {outcome.same_scores}\n")
    return outcome


def _evaluate(here: Path, kills: int | None, outcome: Outcome, dice: random.Random, arena: Arena) -> Path:
    """One evaluation to its end, through up to five kills."""
    here.mkdir(parents=True)
    plan = write_plan(here)
    left = min(kills or 0, 5)
    finished: list[tuple[float, set[tuple[str, Shard]]]] = []  # what was in its place at each kill
    status = None
    while status != 0:
        with (here / "said").open("a") as said:
            command = [sys.executable, "-m", "diagnose", "evaluate", str(plan), "--json", *arena.options]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
        while process.poll() is None and left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(dice.uniform(0.3, 3.0))
                break
            before = _finished(plan)
            who = dice.choice(arena.who)
            if arena.kill(who, process, dice):
                left -= 1
                outcome.kills[who] += 1
                finished.append((time.time(), before))
        status = process.wait()
        if status not in (0, 75, -signal.SIGKILL):
            raise RuntimeError(f"the evaluation ended with {status}: {(here / 'said').read_text()[-2000:]}")
    for at, before in finished:
        outcome.repeated += _begun_again(here / "ledger", before, at)
    return here


def below_of(pids: Iterable[int]) -> list[int]:
    """All processes that these started, and those that they started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, queue = [], list(pids)
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _results(plan: Path) -> Results:
    file = read(plan)
    assert file.checkpoint is not None
    return Results(file.results / file.checkpoint.name, file.suite, file.checkpoint)


def _finished(plan: Path) -> set[tuple[str, Shard]]:
    """(trials or scores, shard) of all that is in its place."""
    return {
        (kind, shard)
        for piece in _results(plan).done()
        for kind, shard in (
            [("scores", piece.shard)]
            if isinstance(piece, Scoring)
            else [("trials", one) for one in getattr(piece, "shards", ())]
        )
    }


def _begun_again(ledger: Path, finished: set[tuple[str, Shard]], since: float) -> list[str]:
    """Shards that were in their place before, and of which samples were begun again after."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            kind, name, first, count, at = json.loads(line)
            found += [
                f"{kind} {shard.key} by {first}-{count}"
                for which, shard in finished
                if at > since and which == kind and shard.dataset == name
                if shard.first < first + count and first < shard.first + shard.count
            ]
    return found


def _scores(here: Path) -> str:
    found = json.loads((here / "evaluation" / "ckpt" / "scores.json").read_text())
    return json.dumps([found["datasets"], found["missing"]], sort_keys=True)
