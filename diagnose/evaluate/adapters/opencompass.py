"""OpenCompass (``opencompass``, tried with 0.5.4), with inference and metrics apart.

    python -m diagnose.evaluate.adapters.opencompass infer --config CONFIG.py --checkpoint {checkpoint} --datasets {dataset} --shards {shard} --out {outputs}
    python -m diagnose.evaluate.adapters.opencompass score --config CONFIG.py --dataset {dataset} --outputs {outputs} --to {scores}
    python -m diagnose.evaluate.adapters.opencompass samples --config CONFIG.py

``CONFIG.py`` is a configuration of OpenCompass, with one model and the data sets. Both commands run OpenCompass's own tasks: ``infer``
those of inference over a range of samples, as its partitioners do; ``score`` those of evaluation, over the predictions of all
ranges together. So the scores are OpenCompass's own.
"""  # noqa: E501  # commands are not broken

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_MODEL = "model"
"""how the model is called, so that no path depends on the checkpoint"""
_WRITTEN = "predictions.json"


def infer(arguments: argparse.Namespace) -> None:
    from opencompass.tasks import OpenICLInferTask

    model, known = _configuration(arguments.config)
    if "path" not in model:
        raise SystemExit(f"diagnose: the model of {arguments.config} has no path, so it cannot be another checkpoint")
    if model.get("tokenizer_path") == model["path"]:
        model["tokenizer_path"] = arguments.checkpoint
    model["path"] = arguments.checkpoint
    names, shards = arguments.datasets.split(","), arguments.shards.split(",")
    chosen, counts = [], {}
    for name, shard in zip(names, shards, strict=True):
        first, count = map(int, shard.split(":"))
        dataset, counts[name] = _named(known, name, arguments.config), count
        reader = dict(dataset["reader_cfg"])
        chosen.append(
            {**dataset, "abbr": name, "reader_cfg": {**reader, "test_range": f"{_range(reader)}[{first}:{first + count}]"}}
        )
    with tempfile.TemporaryDirectory(dir=arguments.out) as work:
        OpenICLInferTask(_task(model, chosen, work)).run()
        for name in names:
            written = json.loads(Path(work, "predictions", _MODEL, f"{name}.json").read_text())
            if len(written) != counts[name]:
                raise SystemExit(f"diagnose: {name} has {len(written)} predictions, and {counts[name]} were asked for")
            folder = Path(arguments.out, name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _WRITTEN).write_text(json.dumps(written, ensure_ascii=False))


def score(arguments: argparse.Namespace) -> None:
    from opencompass.tasks import OpenICLEvalTask

    model, known = _configuration(arguments.config)
    dataset = {**_named(known, arguments.dataset, arguments.config), "abbr": arguments.dataset}
    with tempfile.TemporaryDirectory(dir=Path(arguments.to).parent) as work:
        place = Path(work, "predictions", _MODEL, f"{arguments.dataset}.json")
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(joined(Path(arguments.outputs).rglob(_WRITTEN)), ensure_ascii=False))
        OpenICLEvalTask(_task(model, [dataset], work)).run()
        found = json.loads(Path(work, "results", _MODEL, f"{arguments.dataset}.json").read_text())
    Path(arguments.to).write_text(json.dumps(told(found, arguments.lower.split(",") if arguments.lower else ())))


def count(arguments: argparse.Namespace) -> None:
    """Print the ``datasets`` of a plan."""
    from opencompass.utils import build_dataset_from_cfg, dataset_abbr_from_cfg

    for dataset in _configuration(arguments.config)[1]:
        print(f"  - {{name: {dataset_abbr_from_cfg(dataset)}, samples: {len(build_dataset_from_cfg(dataset).test)}}}")  # noqa: T201


def joined(paths: Iterable[Path]) -> dict[str, Any]:
    """The predictions of ranges, each in a folder ``FIRST-COUNT``, as those of one run."""
    found: list[Any] = []
    for first, path in sorted((int(path.parent.name.partition("-")[0]), path) for path in paths):
        if first != len(found):
            raise SystemExit(f"diagnose: samples {len(found)} to {first - 1} have no predictions")
        part = json.loads(path.read_text())
        found += [part[str(number)] for number in range(len(part))]
    return {str(number): one for number, one in enumerate(found)}


def told(found: dict[str, Any], lower: Sequence[str]) -> dict[str, Any]:
    """What a metric writes: all numbers of the result, and those of each sample where they make up the score."""
    scores = {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
    correct = _correct(found.get("details"))
    values = {}
    for name, value in scores.items() if correct else ():
        for whole in (100.0, 1.0):  # most are in percent
            if math.isclose(sum(correct) / len(correct) * whole, value, rel_tol=1e-9, abs_tol=1e-9):
                values[name] = [one * whole for one in correct]
                break
    return {"scores": scores, "values": values, "lower": [name for name in lower if name in scores]}


def _correct(details: Any) -> list[float]:
    """Whether each sample is right, if OpenCompass says so of all of them."""
    if isinstance(details, dict):  # by the number of the sample, with other things beside
        details = [details[str(number)] for number in range(len(details)) if str(number) in details]
    if not isinstance(details, list) or not all(isinstance(row, dict) for row in details):
        return []
    marks = [row.get("correct", row.get("is_correct")) for row in details]
    marks = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in marks]
    return [float(one) for one in marks] if all(isinstance(one, (bool, int, float)) for one in marks) else []


def _configuration(path: str) -> tuple[dict[str, Any], list[Any]]:
    """(the model, the data sets)"""
    from mmengine.config import Config

    read = Config.fromfile(path, format_python_code=False)
    models, datasets = read.get("models") or [], read.get("datasets") or []
    if len(models) != 1:
        raise SystemExit(f"diagnose: {path} has {len(models)} models; name one in   models = [...]")
    return {**models[0], "abbr": _MODEL}, list(datasets)


def _named(datasets: Iterable[Any], name: str, where: str) -> dict[str, Any]:
    from opencompass.utils import dataset_abbr_from_cfg

    for one in datasets:
        if dataset_abbr_from_cfg(one) == name:
            return dict(one)
    raise SystemExit(f"diagnose: {where} has no data set {name}")


def _range(reader: dict[str, Any]) -> str:
    """The part of the data set that the configuration takes. OpenCompass applies ranges one after the other."""
    given = reader.get("test_range") or ""
    if not isinstance(given, str):
        raise SystemExit(f"diagnose: write test_range as a text, such as '[0:100]', and not {given!r}")
    return given


def _task(model: dict[str, Any], datasets: Sequence[Any], work: str) -> Any:
    from mmengine.config import ConfigDict

    evaluation = {"runner": {"task": {"dump_details": True}}}
    return ConfigDict({"models": [model], "datasets": [list(datasets)], "work_dir": work, "eval": evaluation})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m diagnose.evaluate.adapters.opencompass", description=__doc__)
    below = parser.add_subparsers(dest="what", required=True)
    for name in ("infer", "score", "samples"):
        command = below.add_parser(name)
        command.add_argument("--config", required=True, help="a configuration of OpenCompass")
        if name == "infer":
            command.add_argument("--checkpoint", required=True)
            command.add_argument("--datasets", required=True, help="as OpenCompass calls them (abbr), joined by commas")
            command.add_argument("--shards", required=True, help="FIRST:COUNT of each data set, joined by commas")
            command.add_argument("--out", required=True)
        if name == "score":
            command.add_argument("--dataset", required=True)
            command.add_argument("--outputs", required=True)
            command.add_argument("--to", required=True)
            command.add_argument("--lower", help="scores of which less is better, joined by commas")
    arguments = parser.parse_args(argv)
    {"infer": infer, "score": score, "samples": count}[arguments.what](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
