"""lm-evaluation-harness (``lm_eval``, tried with 0.4.13), with inference and metrics apart.

    python -m diagnose.evaluate.adapters.lm_eval infer --checkpoint {checkpoint} --tasks {dataset} --shards {shard} --out {outputs}
    python -m diagnose.evaluate.adapters.lm_eval score --tasks {dataset} --outputs {outputs} --to {scores}
    python -m diagnose.evaluate.adapters.lm_eval samples --tasks TASK,TASK

``infer`` lets the harness make the requests of the whole task, so that the examples in a prompt are those of a plain run, and
asks the model only those of its samples. ``score`` lets the harness run the whole task with a model that repeats what was
written. So the scores are the harness's own, of all samples, with its own filters and aggregation. An answer is only repeated to
the request that it was given to: whatever does not fit is an error.
"""  # noqa: E501  # commands are not broken

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

_KINDS = ("loglikelihood", "loglikelihood_rolling", "generate_until")
_NOTHING: dict[str, Any] = {"loglikelihood": (0.0, False), "loglikelihood_rolling": 0.0, "generate_until": ""}
Key = tuple[str, int, int, str]


def key_of(request: Any) -> Key:
    """Which request it is: task, document, number in the document, and what is asked."""
    asked = json.dumps([request.request_type, request.args], default=str, sort_keys=True)
    digest = hashlib.blake2b(asked.encode(), digest_size=12).hexdigest()
    return str(request.task_name), int(request.doc_id), int(request.idx), digest


def infer(arguments: argparse.Namespace) -> None:
    ranges = dict(zip(arguments.tasks.split(","), map(_range, arguments.shards.split(",")), strict=True))
    lm = _model(arguments)
    written: list[tuple[str, dict[str, Any]]] = []

    def only_ours(kind: str, ask: Callable[..., Any]) -> Callable[[Sequence[Any]], list[Any]]:
        def answer(requests: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
            ours = [number for number, one in enumerate(requests) if one.doc_id in ranges[one.task_name]]
            answers = [_NOTHING[kind]] * len(requests)
            for number, said in zip(ours, ask([requests[number] for number in ours]) if ours else (), strict=True):
                answers[number] = said
                task, doc, idx, digest = key_of(requests[number])
                written.append((task, {"doc": doc, "idx": idx, "asked": digest, "said": said}))
            return answers

        return answer

    for kind in _KINDS:
        setattr(lm, kind, only_ours(kind, getattr(lm, kind)))
    _evaluate(arguments, lm, predict_only=True)
    for task in ranges:
        folder = Path(arguments.out, task)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, default=float) + "\n" for name, row in written if name == task]
        (folder / "answers.jsonl").write_text("".join(lines))


def score(arguments: argparse.Namespace) -> None:
    known: dict[Key, list[Any]] = {}
    for path in sorted(Path(arguments.outputs).rglob("answers.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            known.setdefault((arguments.tasks, row["doc"], row["idx"], row["asked"]), []).append(row["said"])
    found = _evaluate(arguments, _repeating(known))
    results = found["results"][arguments.tasks]
    scores = {
        name: float(value)
        for name, value in results.items()
        if "_stderr" not in name and isinstance(value, (int, float)) and not isinstance(value, bool) and "," in name
    }
    samples = found["samples"][arguments.tasks]
    values = {name: _values(name, samples) for name in scores}
    rises = found.get("higher_is_better", {}).get(arguments.tasks, {})
    told = {
        "scores": scores,
        "values": {name: many for name, many in values.items() if many is not None},
        "lower": sorted(name for name in scores if rises.get(name.partition(",")[0]) is False),
    }
    Path(arguments.to).write_text(json.dumps(told))


def count(arguments: argparse.Namespace) -> None:
    """Print the ``datasets`` of a plan."""
    tasks = _tasks(arguments)
    for name in arguments.tasks.split(","):
        print(f"  - {{name: {name}, samples: {len(list(tasks[name].eval_docs))}}}")  # noqa: T201


def _values(name: str, samples: Iterable[dict[str, Any]]) -> list[float] | None:
    """A number for each sample, where the harness has one."""
    metric, _, filtered = name.partition(",")
    rows = sorted((one for one in samples if one.get("filter") == filtered), key=lambda one: int(one["doc_id"]))
    found = [one.get(metric) for one in rows]
    if not found or not all(isinstance(one, (bool, int, float)) for one in found):
        return None
    return [float(one) for one in found if one is not None]


def _range(shard: str) -> range:
    first, _, many = shard.partition(":")
    return range(int(first), int(first) + int(many))


def _repeating(known: dict[Key, list[Any]]) -> Any:
    from lm_eval.api.model import LM

    class Repeating(LM):  # type: ignore[misc]
        """Says what the real model said to the same request."""

        def _answers(self, requests: Sequence[Any]) -> list[Any]:
            asked: dict[Key, int] = {}
            found = []
            for request in requests:
                key = key_of(request)
                number = asked[key] = asked.get(key, -1) + 1
                if number >= len(known.get(key, ())):
                    raise ValueError(f"no trial was asked request {key[2]} of sample {key[1]} of {key[0]} as it is asked now")
                found.append(known[key][number])
            return found

        def loglikelihood(self, requests: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
            return [tuple(said) for said in self._answers(requests)]

        def loglikelihood_rolling(self, requests: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
            return self._answers(requests)

        def generate_until(self, requests: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
            return self._answers(requests)

    return Repeating()


def _model(arguments: argparse.Namespace) -> Any:
    from lm_eval.api.registry import get_model

    given = f"pretrained={arguments.checkpoint}" + (f",{arguments.model_args}" if arguments.model_args else "")
    settings = {"batch_size": arguments.batch_size, "device": arguments.device}
    return get_model(arguments.model).create_from_arg_string(given, settings)


def _evaluate(arguments: argparse.Namespace, lm: Any, **more: Any) -> Any:
    import lm_eval

    return lm_eval.simple_evaluate(
        model=lm,
        tasks=arguments.tasks.split(","),
        task_manager=_manager(arguments),
        num_fewshot=arguments.num_fewshot,
        bootstrap_iters=0,
        log_samples=True,
        **more,
    )


def _tasks(arguments: argparse.Namespace) -> dict[str, Any]:
    return dict(_manager(arguments).load(arguments.tasks.split(","))["tasks"])


def _manager(arguments: argparse.Namespace) -> Any:
    """The harness's index of tasks. Its own thousands take seconds to read, so they are left out where all tasks are yours.

    A group or tag of yours may name the harness's, so it does not count as such.
    """
    from lm_eval.tasks import TaskManager

    class Unscored(TaskManager):  # type: ignore[misc,unused-ignore]  # lm_eval may be missing where types are checked
        """A trial scores nothing. A task may have a function of its own for that, which the harness would call all the same,
        also for the samples of other trials."""

        def load(self, *given: Any, **more: Any) -> Any:
            found = super().load(*given, **more)
            for task in found["tasks"].values():
                task.process_results = lambda doc, results: {"bypass": 0}
            return found

    made = Unscored if arguments.what == "infer" else TaskManager
    if arguments.include_path:
        yours = made(include_path=arguments.include_path, include_defaults=False)
        if set(arguments.tasks.split(",")) <= set(yours.all_subtasks):
            return yours
    return made(include_path=arguments.include_path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m diagnose.evaluate.adapters.lm_eval", description=__doc__)
    below = parser.add_subparsers(dest="what", required=True)
    for name in ("infer", "score", "samples"):
        command = below.add_parser(name)
        command.add_argument("--tasks", required=True, help="names of the harness, joined by commas")
        command.add_argument("--include-path", help="folder with tasks of your own")
        command.add_argument("--num-fewshot", type=int)
        if name == "infer":
            command.add_argument("--checkpoint", required=True)
            command.add_argument("--shards", required=True, help="FIRST:COUNT of each task, joined by commas")
            command.add_argument("--out", required=True)
            command.add_argument("--model", default="hf")
            command.add_argument("--model-args", default="")
            command.add_argument("--batch-size", default="1")
            command.add_argument("--device", default=None)
        if name == "score":
            command.add_argument("--outputs", required=True)
            command.add_argument("--to", required=True)
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    {"infer": infer, "score": score, "samples": count}[arguments.what](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
