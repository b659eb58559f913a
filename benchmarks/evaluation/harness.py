"""The real lm-evaluation-harness under a plan on a real Ray cluster: are the scores those of the harness run plainly?

The model is tiny and has random weights; the data sets are made here. Four simulated nodes share this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation import clusters, tiny

SIZES = (40, 24, 18, 120, 30, 12, 60, 18, 30, 24, 12, 48)
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
_PLAIN = """
import json, sys, lm_eval
from lm_eval.tasks import TaskManager
checkpoint, folder, tasks, out = sys.argv[1:]
found = lm_eval.simple_evaluate(model="hf", model_args="pretrained=" + checkpoint, tasks=tasks.split(","), batch_size=1,
    device="cpu", bootstrap_iters=0, task_manager=TaskManager(include_path=folder))
json.dump(found["results"], open(out, "w"))
"""


def plain(folder: Path, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """task -> score -> value, by the harness alone."""
    out = folder / "plain.json"
    words = [sys.executable, "-c", _PLAIN, str(folder / "ckpt"), str(folder / "tasks"), ",".join(names), str(out)]
    subprocess.run(words, env={**os.environ, **_OFFLINE}, check=True, capture_output=True, timeout=600)
    found = json.loads(out.read_text())
    return {
        task: {name: value for name, value in scores.items() if "," in name and "_stderr" not in name}
        for task, scores in found.items()
    }


def write_plan(folder: Path, sizes: Sequence[int]) -> Path:
    tiny.write_model(folder / "ckpt")
    made = tiny.write_tasks(folder / "tasks", sizes)
    adapter = f"{sys.executable} -m diagnose.evaluate.adapters.lm_eval"
    plan = {
        "checkpoint": "ckpt",
        "priors": "priors.db",
        "joined": ",",
        "load": "copy",
        "costs": {"start": "15s", "prepare": "1s", "metric": "8s", "load": "1s"},
        "trial": f"{adapter} infer --checkpoint {{checkpoint}} --tasks {{dataset}} --shards {{shard}} --out {{outputs}} "
        f"--include-path {folder}/tasks --device cpu",
        "metric": f"{adapter} score --tasks {{dataset}} --outputs {{outputs}} --to {{scores}} --include-path {folder}/tasks",
        "nodes": [{"name": "here", "places": 2, "processors": 2}],
        "datasets": [
            {"name": name, "samples": size, "expected": {"trial": f"{size}s", "metric": "1s"}} for name, size in made.items()
        ],
    }
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan))
    return path


def evaluate(plan: Path, *more: str) -> dict[str, Any]:
    """What the product finds."""
    words = [sys.executable, "-m", "diagnose", "evaluate", str(plan), "--json", *more]
    done = subprocess.run(words, env={**os.environ, **_OFFLINE}, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(folder: Path, sizes: Sequence[int] = SIZES, *, nodes: int = 4) -> dict[str, Any]:
    """``nodes``: simulated ones of a Ray cluster; 0: this machine, without Ray."""
    plan = write_plan(folder, sizes)
    began = time.monotonic()
    if nodes:
        cluster = clusters.empty()
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=2, num_gpus=1)
            ours = evaluate(plan, "--on", "ray", "--address", cluster.address)
        finally:
            cluster.shutdown()
    else:
        ours = evaluate(plan)
    took = time.monotonic() - began
    scores = {name: one["scores"] for name, one in ours["datasets"].items()}
    alone = plain(folder, list(scores))
    shards = {name: len(list((folder / "evaluation" / "ckpt" / "trials" / name).iterdir())) for name in scores}
    return {
        "data sets": len(sizes),
        "identical": sum(scores[name] == alone[name] for name in scores),
        "in several shards": sum(many > 1 for many in shards.values()),
        "shards": sum(shards.values()),
        "scores": sum(len(one) for one in scores.values()),
        "took_s": took,
    }
