"""YAML -> what to evaluate, with what, and where. Each mistake names the file, the line and what to write."""

from __future__ import annotations

import os
import shlex
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from diagnose.errors import DiagnoseError, nearest
from diagnose.evaluate.estimates import Overheads
from diagnose.evaluate.suite import DataSet, Loading, Metric, Node, Suite
from diagnose.knowledge.documents import Document, parse
from diagnose.quantities import DAY_S, Seconds, allowed

TRIAL: Final = ("checkpoint", "dataset", "shard", "first", "count", "outputs")
METRIC: Final = ("checkpoint", "dataset", "shard", "first", "count", "outputs", "scores")
"""what a command may contain in braces"""
_USUAL = Overheads()
_MOST_BYTES = 4 << 20
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$"
Name = Annotated[str, Field(pattern=_NAME, examples=["letters, digits, dots and dashes, such as gsm8k"])]
Expected = Annotated[Seconds, Field(gt=0, le=30 * DAY_S)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricClause(_Table):
    command: str = Field(min_length=1, max_length=8192)
    split: bool = False
    at_once: int | None = Field(None, ge=1, le=100_000)
    processors: int = Field(1, ge=1, le=100_000)


MetricField = Annotated[MetricClause, BeforeValidator(lambda given: {"command": given} if isinstance(given, str) else given)]


class ExpectedClause(_Table):
    trial: Expected | None = None
    metric: Expected | None = None


class DataSetClause(_Table):
    name: Name
    samples: int = Field(ge=1, le=1_000_000_000)
    split: bool = True
    trial: str | None = Field(None, min_length=1, max_length=8192)
    metric: MetricField | None = None
    expected: ExpectedClause = ExpectedClause()


class NodeClause(_Table):
    name: Name
    places: int = Field(ge=0, le=10_000)
    processors: int = Field(1, ge=0, le=100_000)


class CostsClause(_Table):
    load: Expected = _USUAL.load_s
    start: Expected = _USUAL.start_s
    prepare: Expected = _USUAL.prepare_s
    metric: Expected = _USUAL.metric_s


class File(_Table):
    """A plan file."""

    checkpoint: Path | None = None
    model: Name = "model"
    results: Path = Path("evaluation")
    priors: Path | None = None
    trial: str | None = Field(None, min_length=1, max_length=8192)
    metric: MetricField | None = None
    joined: str | None = Field(None, min_length=1, max_length=4)
    load: Loading = "none"
    retries: int = Field(1, ge=0, le=10)
    costs: CostsClause = CostsClause()
    nodes: tuple[NodeClause, ...] = Field((), max_length=10_000)
    datasets: tuple[DataSetClause, ...] = Field(min_length=1, max_length=10_000)

    @property
    def suite(self) -> Suite:
        return Suite(tuple(self._dataset(one) for one in self.datasets), self.joined, self.load)

    def machines(self) -> list[Node]:
        """The nodes of the file, or this machine."""
        return [Node(one.name, one.places, one.processors) for one in self.nodes] or [this_machine()]

    @property
    def overheads(self) -> Overheads:
        costs = self.costs
        return Overheads(costs.load, costs.start, costs.prepare, costs.metric)

    def _dataset(self, one: DataSetClause) -> DataSet:
        metric, trial = one.metric or self.metric, one.trial or self.trial
        assert metric is not None  # read() saw to both
        assert trial is not None
        return DataSet(
            one.name,
            one.samples,
            trial,
            Metric(metric.command, metric.split, metric.at_once, metric.processors),
            one.split,
            one.expected.trial,
            one.expected.metric,
        )


def this_machine() -> Node:
    """A place for each GPU that is to be seen; without any, one place."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Node("localhost", max(1, len(gpus())), processors)


def gpus() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [one.strip() for one in visible.split(",") if one.strip() not in ("", "-1")]
    found = sorted(Path("/dev").glob("nvidia[0-9]*"), key=lambda path: int(path.name.removeprefix("nvidia")))
    return [path.name.removeprefix("nvidia") for path in found]


def read(path: Path) -> File:
    """The plan in the file ``path``. Relative paths in it are relative to its folder."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(f"cannot be read: {error}", where=str(path), remedy="give a YAML file in UTF-8") from None
    if len(text) > _MOST_BYTES:
        raise DiagnoseError("is larger than 4 MiB", where=str(path), remedy="give a plan file")
    document = parse(text, str(path))
    if not isinstance(document.value, dict):
        raise DiagnoseError("a plan is a mapping", where=str(path), remedy="docs/evaluation.md has an example")
    try:
        file_ = File.model_validate(document.value)
    except ValidationError as refused:
        raise _objection(refused, document, str(path)) from None
    _check(file_, document, str(path))
    at = path.absolute().parent
    places = {"results": at / file_.results}
    if file_.checkpoint is not None:
        places["checkpoint"] = at / file_.checkpoint
    if file_.priors is not None:
        places["priors"] = at / file_.priors
    return file_.model_copy(update=places)


def placeholders(command: str) -> set[str]:
    """The names in braces."""
    return {name for _, name, _, _ in string.Formatter().parse(command) if name is not None}


def words(command: str) -> list[str]:
    """As a shell would part them. No shell runs them."""
    return shlex.split(command)


def _objection(refused: ValidationError, document: Document, where: str) -> DiagnoseError:
    error = refused.errors(include_url=False)[0]
    loc = error["loc"]
    place, name = f"{where}:{document.line(*loc)}", str(loc[-1])
    table = _table(loc[:-1])
    fields = table.model_fields if table is not None else {}
    match error["type"]:
        case "missing":
            return DiagnoseError(f"{name} is missing", where=place, remedy=f"add   {name}: {allowed(fields[name])}")
        case "extra_forbidden":
            meant = nearest(name, fields)
            hint = f"did you mean {meant}?" if meant else f"those here are {', '.join(fields)}"
            return DiagnoseError(f"there is no {name}", where=place, remedy=hint)
        case "model_type" | "tuple_type":
            form = "a mapping" if error["type"] == "model_type" else "a list"
            return DiagnoseError(f"{name} is not {form}", where=place, remedy="docs/evaluation.md has an example")
    given = str(error["input"])[:80]
    remedy = f"write {allowed(fields[name])}" if name in fields else str(error["msg"])
    return DiagnoseError(f"{given!r} is no {name} that can be used", where=place, remedy=remedy)


def _table(loc: Iterable[int | str]) -> type[BaseModel] | None:
    tables: dict[str, type[BaseModel]] = {
        "datasets": DataSetClause,
        "nodes": NodeClause,
        "metric": MetricClause,
        "costs": CostsClause,
        "expected": ExpectedClause,
    }
    names = [one for one in loc if isinstance(one, str)]
    return tables.get(names[-1]) if names else File


def _check(file: File, document: Document, where: str) -> None:
    """What is wrong between clauses."""

    def wrong(what: str, remedy: str, *at: Any) -> DiagnoseError:
        return DiagnoseError(what, where=f"{where}:{document.line(*at)}", remedy=remedy)

    for kind, names in (("datasets", [one.name for one in file.datasets]), ("nodes", [one.name for one in file.nodes])):
        for number, name in enumerate(names):
            if name in names[:number]:
                raise wrong(f"{name} is there twice", "give each a name of its own", kind, number, "name")
    if file.nodes and not any(node.places for node in file.nodes):
        raise wrong("no node has a place for a trial", "give one of them   places: 1   or more", "nodes")
    if file.nodes and not any(node.processors for node in file.nodes):
        raise wrong("no node has processors for metrics", "give one of them   processors: 1   or more", "nodes")
    for number, dataset in enumerate(file.datasets):
        at = ("datasets", number)
        trial, metric = dataset.trial or file.trial, dataset.metric or file.metric
        if trial is None:
            raise wrong(f"{dataset.name} has no trial", "add   trial: COMMAND   here, or once for all", *at)
        if metric is None:
            raise wrong(f"{dataset.name} has no metric", "add   metric: COMMAND   here, or once for all", *at)
        parted = dataset.split or file.joined is not None
        for kind, command, own, parts in (
            ("trial", trial, dataset.trial, parted),
            ("metric", metric.command, dataset.metric, metric.split),
        ):
            objection = _objection_to(command, kind, parts)
            if objection is not None:
                raise wrong(*objection, *((*at, kind) if own else (kind,)))


_NEEDED: Final = {"trial": ("dataset", "outputs"), "metric": ("outputs", "scores")}
_KNOWN: Final = {"trial": TRIAL, "metric": METRIC}


def _objection_to(command: str, kind: str, parts: bool) -> tuple[str, str] | None:
    """(what is wrong with a command, what to write)"""
    try:
        words(command)
        found = placeholders(command)
    except ValueError as error:
        return f"the command cannot be parted into words: {error}", "close quotes; write {{ for a brace"
    for name in sorted(found - set(_KNOWN[kind])):
        meant = nearest(name, _KNOWN[kind])
        return f"there is no {{{name}}}", f"did you mean {{{meant}}}?" if meant else f"there are {', '.join(_KNOWN[kind])}"
    for name in _NEEDED[kind]:
        if name not in found:
            return f"the command has no {{{name}}}", f"write where {{{name}}} belongs"
    if parts and "shard" not in found and not {"first", "count"} <= found:
        return "the command cannot run a part of the samples", "use {shard}, or {first} and {count}, or write   split: false"
    return None
