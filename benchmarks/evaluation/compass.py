"""OpenCompass run plainly, and the same through its adapter in shards: the same numbers.

It needs an environment of its own, as OpenCompass wants older packages than the rest: ``--python PATH`` is its Python. Model
and data sets are made here; nothing is fetched.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WORDS = "node rank loss step gpu fan disk link heat clock queue shard".split()
_CONFIG = """
from opencompass.datasets.custom import CustomDataset, OptionSimAccEvaluator
from opencompass.models import HuggingFaceBaseModel
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.openicl.icl_inferencer import GenInferencer, PPLInferencer
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import ZeroRetriever

models = [dict(type=HuggingFaceBaseModel, abbr="tiny", path={checkpoint!r}, max_out_len=6, batch_size=1, max_seq_len=256,
               model_kwargs=dict(device_map="cpu"), run_cfg=dict(num_gpus=0))]
_options = list("ABCD")
_asked = "{{question}} A. {{A}} B. {{B}} C. {{C}} D. {{D}} Answer:"
_reader = dict(input_columns=["question", *_options], output_column="answer")


def _dataset(name, template, inferencer, evaluator):
    return dict(abbr=name, type=CustomDataset, path="{folder}/" + name + ".jsonl", local_mode=True, reader_cfg=dict(_reader),
                infer_cfg=dict(prompt_template=dict(type=PromptTemplate, template=template),
                               retriever=dict(type=ZeroRetriever), inferencer=dict(type=inferencer)),
                eval_cfg=dict(evaluator=evaluator))


datasets = [
    _dataset("choose", _asked, GenInferencer, dict(type=OptionSimAccEvaluator, options=_options)),
    _dataset("likely", {{one: _asked + " " + one for one in _options}}, PPLInferencer, dict(type=AccEvaluator)),
    _dataset("exact", "{{question}}:", GenInferencer, dict(type=AccEvaluator)),
]
del _dataset  # OpenCompass writes the configuration down, and functions cannot be written
"""
SIZES = {"choose": 21, "likely": 13, "exact": 8}


def write(folder: Path, checkpoint: Path) -> Path:
    """The data sets and their configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, size) in enumerate(SIZES.items()):
        dice = random.Random(number)
        rows = []
        for _ in range(size):
            words = dice.sample(_WORDS, 8)
            rows.append(
                {"question": " ".join(words[:4]), **dict(zip("ABCD", words[4:], strict=True)), "answer": dice.choice("ABCD")}
            )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "config.py"
    path.write_text(_CONFIG.format(checkpoint=str(checkpoint), folder=folder))
    return path


def compare(python: str, folder: Path) -> dict[str, bool]:
    """data set -> whether the adapter's scores are those of OpenCompass run plainly."""
    checkpoint = folder / "ckpt"
    writes = f"from pathlib import Path; from benchmarks.evaluation import tiny; tiny.write_model(Path({str(checkpoint)!r}))"
    _run([python, "-c", writes], folder)  # with its own packages: it may not read what newer ones write
    config = write(folder / "data", checkpoint)
    ours = adapted(python, config, checkpoint, folder / "adapted")
    theirs = plain(python, config, folder / "plain")
    return {name: ours[name]["scores"] == theirs[name] for name in SIZES}


def plain(python: str, config: Path, folder: Path) -> dict[str, dict[str, float]]:
    """The scores of ``opencompass CONFIG``."""
    _run([python, "-m", "opencompass.cli.main", str(config), "--work-dir", str(folder), "--max-num-workers", "1"], folder)
    found = {}
    for path in sorted(folder.glob("*/results/*/*.json")):
        said = json.loads(path.read_text())
        found[path.stem] = {name: float(value) for name, value in said.items() if isinstance(value, (int, float))}
    return found


def adapted(python: str, config: Path, checkpoint: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """What the adapter writes, from inference in three shards."""
    adapter = [python, "-m", "diagnose.evaluate.adapters.opencompass"]
    names = list(SIZES)
    for number in range(3):
        edges = {name: (size * number // 3, size * (number + 1) // 3) for name, size in SIZES.items()}
        out = folder / f"out{number}"
        out.mkdir(parents=True)
        shards = ",".join(f"{first}:{end - first}" for first, end in edges.values())
        _run([*adapter, "infer", "--config", str(config), "--checkpoint", str(checkpoint), "--datasets", ",".join(names),
              "--shards", shards, "--out", str(out)], folder)  # fmt: skip
        for name, (first, end) in edges.items():
            place = folder / "trials" / name / f"{first}-{end - first}"
            place.parent.mkdir(parents=True, exist_ok=True)
            (out / name).rename(place)
    found = {}
    for name in names:
        to = folder / f"{name}.json"
        _run([*adapter, "score", "--config", str(config), "--dataset", name, "--outputs", str(folder / "trials" / name),
              "--to", str(to)], folder)  # fmt: skip
        found[name] = json.loads(to.read_text())
    return found


def _run(command: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).resolve().parents[2])
    more = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    ran = subprocess.run(command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=900)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stdout[-1000:]} {ran.stderr[-3000:]}")
