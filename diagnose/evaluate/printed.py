"""A plan, and afterwards the truth beside it, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from diagnose.evaluate.estimates import MEASURED, SHARED_NOISE, TOLD, Estimates
from diagnose.evaluate.expectation import Span
from diagnose.evaluate.planner import Plan
from diagnose.evaluate.spent import Spent
from diagnose.evaluate.suite import Node, Suite
from diagnose.evaluate.work import Load, Piece, Scoring, Trial


def duration(seconds: float) -> str:
    """In the unit that a person would use."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def known_from(name: str, estimates: Estimates) -> str:
    if name in estimates.unknown:
        return "nothing, tried first"
    spread = estimates.trials[name].spread
    return "measured" if spread <= max(MEASURED, SHARED_NOISE) else "told" if spread <= TOLD else "guessed"


def headline(suite: Suite, nodes: Sequence[Node], found: Plan) -> str:
    """The first sentences."""
    samples = sum(one.samples for one in suite.datasets)
    places, processors = sum(node.places for node in nodes), sum(node.processors for node in nodes)
    machines = "this machine" if [node.name for node in nodes] == ["localhost"] else _many(len(nodes), "node")
    between = ""
    if found.between_s is not None:
        low, high = (duration(one) for one in found.between_s)
        between = f", in four of five cases {low} to {high}"
    return (
        f"{_many(len(suite.datasets), 'data set')} with {_many(samples, 'sample')} on {machines}: "
        f"{_many(places, 'place')} for trials, {_many(processors, 'processor')} for metrics.\n"
        f"Expected to take {duration(found.expected_s)}{between}."
    )


def rows(suite: Suite, estimates: Estimates, found: Plan) -> list[tuple[str, ...]]:
    """A table of the data sets in the order in which they begin."""
    begins: dict[str, float] = {}
    trials: Counter[str] = Counter()
    metrics: Counter[str] = Counter()
    for span in found.spans:
        for name in _names(span.piece):
            begins.setdefault(name, span.begin_s)
            (trials if isinstance(span.piece, Trial) else metrics)[name] += 1
    table: list[tuple[str, ...]] = [("data set", "begins", "samples", "trial", "in parts", "metric", "in parts", "known from")]
    for one in sorted(suite.datasets, key=lambda one: begins.get(one.name, 0.0)):
        table.append((
            one.name,
            duration(begins[one.name]) if one.name in begins else "done",
            f"{one.samples:,}",
            duration(estimates.trials[one.name].seconds * one.samples),
            str(trials[one.name]),
            duration(estimates.metrics[one.name].seconds * one.samples),
            str(metrics[one.name]),
            known_from(one.name, estimates),
        ))  # fmt: skip
    return table


def pieces(spans: Iterable[Span]) -> list[tuple[str, ...]]:
    """A table of all pieces of work."""
    table: list[tuple[str, ...]] = [("begins", "takes", "node", "what")]
    return table + [
        (duration(one.begin_s), duration(one.end_s - one.begin_s), one.node, one.piece.key) for one in spans
    ]  # fmt: skip


def spent(went: Spent) -> str:
    """Where the time went."""
    places = {"loading": went.loading_s, "running the model": went.inference_s}
    places |= {"what failed": went.failed_s, "waiting": went.waiting_s}
    told = ", ".join(f"{what} {duration(seconds)}" for what, seconds in places.items() if seconds >= 0.05)
    return f"Of all places together: {told}. Metrics beside them: {duration(went.metric_s)}."


def fall(one: Mapping[str, Any]) -> str:
    """A score that is worse than before."""
    before, now, noise = (f"{one[name]:.4f}" for name in ("before", "now", "noise"))
    what = f"{one['score']} of {one['dataset']} went from {before} ({one['against']}) to {now}"
    return f"{what}, which is worse by more than chance: the noise is {noise}."


def _names(piece: Piece) -> list[str]:
    match piece:
        case Load():
            return []
        case Trial():
            return sorted({shard.dataset for shard in piece.shards})
        case Scoring():
            return [piece.shard.dataset]


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
