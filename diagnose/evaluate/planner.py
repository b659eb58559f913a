"""Suite, estimates and nodes -> plan. A pure function: several ways to cut the work are played, and the shortest is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from diagnose.evaluate.cutting import Cut, Order
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import Estimates
from diagnose.evaluate.expectation import Span, believed, drawn, makespan, play
from diagnose.evaluate.suite import Node, Suite
from diagnose.evaluate.work import Piece

_SHARES = (1.2, 1.6, 2.2, 3.0)
_LEAST = (1.0, 2.0, 4.0)
"""a trial is not made shorter than so many times the cost of starting it"""
_ORDERS: tuple[Order, ...] = ("whole", "path")
_SCORINGS = 8
"""a metric that can be split is cut into so many parts of what one place does"""
_PLAYED = 2
"""worlds in which each way is played, beside the believed one"""
_TOLD = 40
"""worlds from which the uncertainty is told"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs, in which order, and how long it should take."""

    how: Cut
    spans: tuple[Span, ...]
    """as believed"""
    expected_s: float
    between_s: tuple[float, float] | None = None
    """in four of five cases"""


def plan(suite: Suite, estimates: Estimates, nodes: Sequence[Node], done: Iterable[Piece] = ()) -> Plan:
    """The best way that was found to run what is left of the suite."""
    finished = list(done)
    best: tuple[float, int, Cut] | None = None
    for number, how in enumerate(_ways(suite, estimates, nodes)):
        worlds = [believed(estimates), *(drawn(estimates, seed) for seed in range(_PLAYED))]
        mean = sum(makespan(play(_dispatch(suite, nodes, estimates, how, finished), one)) for one in worlds) / len(worlds)
        if best is None or (mean, number) < best[:2]:
            best = (mean, number, how)
    assert best is not None
    how = best[2]
    dispatch = _dispatch(suite, nodes, estimates, how, finished)
    spans = tuple(play(dispatch, believed(estimates)))
    return Plan(how, spans, makespan(list(spans)))


def uncertainty(suite: Suite, estimates: Estimates, nodes: Sequence[Node], found: Plan, done: Iterable[Piece] = ()) -> Plan:
    """The plan with the makespan between which it will probably be."""
    finished = list(done)
    ends = sorted(
        makespan(play(Dispatch(suite, nodes, estimates, found.how, done=finished), drawn(estimates, 1000 + seed)))
        for seed in range(_TOLD)
    )
    return Plan(found.how, found.spans, found.expected_s, (ends[_TOLD // 10], ends[-1 - _TOLD // 10]))


def _dispatch(suite: Suite, nodes: Sequence[Node], estimates: Estimates, how: Cut, done: list[Piece]) -> Dispatch:
    return Dispatch(suite, nodes, estimates, how, done=done, adapts=False)


def _ways(suite: Suite, estimates: Estimates, nodes: Sequence[Node]) -> Iterator[Cut]:
    """The coarsest first: of equals the one with the fewest pieces wins."""
    places = max(1, sum(node.places for node in nodes))
    over = estimates.overheads
    work = sum(estimates.trials[one.name].seconds * one.samples + over.prepare_s for one in suite.datasets)
    share = max(work / places, 1e-3)
    cost = over.start_s + over.prepare_s
    for shares, least, order in itertools.product(_SHARES, reversed(_LEAST), _ORDERS):
        yield Cut(shares, cost * least, max(share / _SCORINGS, cost), order)
