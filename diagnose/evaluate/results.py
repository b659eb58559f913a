"""The folder of an evaluation: what is finished, what it said, and what happened when. What is in its place is whole.

trials/DATASET/FIRST-COUNT/        what a trial wrote about these samples
scores/DATASET/FIRST-COUNT.json    what the metric said about them
scores.json                        all of it together
spans.jsonl  runs.jsonl            what ran where and when; when coordinators began
failures.jsonl                     what failed, and why
logs/                              what the commands printed
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.checkpoints.found import step_of
from diagnose.errors import DiagnoseError
from diagnose.evaluate import plan_file
from diagnose.evaluate.arrivals import written
from diagnose.evaluate.carry import Order
from diagnose.evaluate.expectation import Span
from diagnose.evaluate.suite import DataSet, Suite
from diagnose.evaluate.work import Load, Piece, Scoring, Shard, Trial

_RANGE = re.compile(r"(\d{1,12})-(\d{1,12})(?:\.json)?")


@dataclass(frozen=True, slots=True)
class Results:
    """The folder of one checkpoint."""

    folder: Path
    suite: Suite
    checkpoint: Path
    written_s: float | None = None
    """when the checkpoint was written, in seconds since 1970"""

    @property
    def step(self) -> int | None:
        """Of the checkpoint, by its name."""
        return step_of(self.checkpoint)

    # --- what is finished

    def done(self) -> list[Piece]:
        """The pieces that need not run again."""
        found: list[Piece] = []
        for one in self.suite.datasets:
            whole = Shard(one.name, 0, one.samples)
            found += [Trial((shard,)) for shard in self._ranges("trials", whole)]
            found += [Scoring(shard) for shard in self._ranges("scores", whole)]
        return found

    def _ranges(self, kind: str, whole: Shard) -> Iterator[Shard]:
        folder = self.folder / kind / whole.dataset
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            match = _RANGE.fullmatch(name)
            if match and int(match[2]) > 0 and int(match[1]) + int(match[2]) <= whole.count:
                yield Shard(whole.dataset, int(match[1]), int(match[2]))

    def held(self, piece: Piece) -> tuple[Shard, ...]:
        """The shards of a piece whose results are in their place, whoever put them there."""
        match piece:
            case Trial():
                return tuple(one for one in piece.shards if (self.folder / "trials" / one.dataset / _range(one)).exists())
            case Scoring():
                return (piece.shard,) if self.scores(piece.shard).exists() else ()
        return ()

    def check_same(self) -> None:
        """What lies here must belong to this plan: the same samples, by the same commands, of the same checkpoint."""
        path = self.folder / "evaluation.json"
        remedy = "give another folder with   results: FOLDER, or remove this one"
        now = {one.name: _digest(one) for one in self.suite.datasets}
        checkpoint, known = str(self.checkpoint), now
        try:
            if path.exists():
                before = json.loads(path.read_text())
                checkpoint, known = str(before["checkpoint"]), dict(before["datasets"])
        except (OSError, ValueError, KeyError, TypeError):
            raise DiagnoseError("it cannot be read", where=str(path), remedy=remedy) from None
        if checkpoint != str(self.checkpoint):
            raise DiagnoseError(f"it has the results of {checkpoint}", where=str(self.folder), remedy=remedy)
        for name, digest in now.items():
            if known.get(name, digest) != digest:
                what = f"{name} was evaluated with other commands or samples"
                raise DiagnoseError(what, where=str(self.folder), remedy=remedy)
        replace(path, json.dumps({"checkpoint": checkpoint, "written": self.written_s, "datasets": {**known, **now}}))

    # --- orders

    def order(self, piece: Piece, number: int, checkpoint: Path) -> Order:
        """The order for a piece of work. ``number``: of all that this coordinator starts."""
        scratch = self.folder / "scratch" / str(number)
        log = self.log(piece, number)
        command: tuple[str, ...]
        processors = 1
        match piece:
            case Load():
                raise ValueError("a load is no command of the plan")
            case Trial():
                outputs = scratch / "outputs"
                named = self.suite.joined is not None
                moves = [
                    (outputs / shard.dataset if named else outputs, self.folder / "trials" / shard.dataset / _range(shard))
                    for shard in piece.shards
                ]
                command = self._filled(self.suite.dataset(piece.shards[0].dataset).trial, piece.shards, checkpoint, outputs)
            case Scoring():
                dataset, scores = self.suite.dataset(piece.shard.dataset), scratch / "scores.json"
                moves = [(scores, self.scores(piece.shard))]
                outputs, processors = scratch, dataset.metric.processors
                read_from = self._outputs(dataset, piece.shard)
                command = self._filled(dataset.metric.command, (piece.shard,), checkpoint, read_from, scores)
        texts = tuple((str(source), str(target)) for source, target in moves)
        return Order(
            f"{piece.key}#{number}", command, str(self.folder), str(scratch), str(outputs), str(log), texts, {}, processors
        )

    def without_outputs(self, piece: Piece, number: int, command: tuple[str, ...]) -> Order:
        """An order that leaves nothing in this folder."""
        scratch = str(self.folder / "scratch" / str(number))
        return Order(f"{piece.key}#{number}", command, str(self.folder), scratch, scratch, str(self.log(piece, number)), ())

    def scores(self, shard: Shard) -> Path:
        return self.folder / "scores" / shard.dataset / f"{_range(shard)}.json"

    def log(self, piece: Piece, number: int) -> Path:
        name = re.sub(r"[^A-Za-z0-9._-]", "_", piece.key)[:80]
        return self.folder / "logs" / f"{name}.{number}.log"

    def _outputs(self, dataset: DataSet, shard: Shard) -> Path:
        """What a metric reads: the outputs of the trial that had these samples, or those of all trials of the data set."""
        folder = self.folder / "trials" / dataset.name
        if not dataset.metric.split:
            return folder
        for one in self._ranges("trials", Shard(dataset.name, 0, dataset.samples)):
            if one.first <= shard.first and shard.first + shard.count <= one.first + one.count:
                return folder / _range(one)
        raise ValueError(f"no trial has the samples {shard}")

    def _filled(
        self, command: str, shards: tuple[Shard, ...], checkpoint: Path, outputs: Path, scores: Path | None = None
    ) -> tuple[str, ...]:
        joined = self.suite.joined or ","
        values = {
            "checkpoint": str(checkpoint),
            "dataset": joined.join(shard.dataset for shard in shards),
            "first": joined.join(str(shard.first) for shard in shards),
            "count": joined.join(str(shard.count) for shard in shards),
            "shard": joined.join(f"{shard.first}:{shard.count}" for shard in shards),
            "outputs": str(outputs),
            "scores": str(scores),
        }
        return tuple(word.format_map(values) for word in plan_file.words(command))

    # --- what happened

    def add_span(self, span: Span, ended_well: bool) -> None:
        """``span``: in seconds since 1970."""
        row = {"key": span.piece.key, "node": span.node, "begin": span.begin_s, "end": span.end_s, "well": ended_well}
        append(self.folder / "spans.jsonl", row)

    def add_run(self, begin_s: float, places: dict[str, int]) -> None:
        """A coordinator begins, with so many places on each node."""
        append(self.folder / "runs.jsonl", {"begin": begin_s, "places": places})

    def runs(self) -> list[dict[str, Any]]:
        return rows(self.folder / "runs.jsonl")

    def spans(self) -> list[dict[str, Any]]:
        return rows(self.folder / "spans.jsonl")

    def failures(self) -> list[dict[str, Any]]:
        return rows(self.folder / "failures.jsonl")


def results_of(base: Path, suite: Suite, checkpoint: Path, written_s: float | None = None) -> Results:
    """The folder of a checkpoint. One that was written again is another one, and has a folder of its own: ``2-NAME``."""
    if written_s is None and checkpoint.exists():
        written_s = written(checkpoint)
    for number in itertools.count(1):
        folder = base / (checkpoint.name if number == 1 else f"{number}-{checkpoint.name}")
        if not (folder / "evaluation.json").exists() or written_s is None or _written(folder) in (None, written_s):
            return Results(folder, suite, checkpoint, written_s)
    raise AssertionError


def _written(folder: Path) -> float | None:
    """When the checkpoint was written whose results these are. None: nobody can say."""
    try:
        said = json.loads((folder / "evaluation.json").read_text())["written"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(said) if isinstance(said, (int, float)) else None


def append(path: Path, row: dict[str, Any]) -> None:
    """A line, in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(row) + "\n").encode())


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in found if isinstance(row, dict)]


def replace(path: Path, text: str) -> None:
    """The whole new text or the whole old one, whenever it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _range(shard: Shard) -> str:
    return f"{shard.first}-{shard.count}"


def _digest(one: DataSet) -> str:
    said = [one.samples, one.trial, one.metric.command, one.metric.split]
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()
