"""A dispatch played without running anything: when each piece would begin and end."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import Belief, Estimates
from diagnose.evaluate.work import Piece


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work in time."""

    piece: Piece
    node: str
    begin_s: float
    end_s: float


def play(dispatch: Dispatch, seconds: Callable[[Piece, str, float], float]) -> list[Span]:
    """``seconds(piece, node, now)``: how long it takes."""
    now, spans = 0.0, []
    ends: list[tuple[float, int, Span]] = []
    while True:
        for piece, node in dispatch.next():
            span = Span(piece, node, now, now + seconds(piece, node, now))
            spans.append(span)
            heapq.heappush(ends, (span.end_s, len(spans), span))
        if not ends:
            return spans
        now, _, span = heapq.heappop(ends)
        dispatch.ended(span.piece, span.end_s - span.begin_s)


def makespan(spans: list[Span]) -> float:
    return max((span.end_s for span in spans), default=0.0)


def believed(estimates: Estimates) -> Callable[[Piece, str, float], float]:
    """Every piece takes as long as is believed."""
    return lambda piece, _, __: estimates.seconds(piece)


def drawn(estimates: Estimates, seed: int) -> Callable[[Piece, str, float], float]:
    """One of the worlds that are possible by what is believed: each data set is off by a factor of its own."""
    dice = random.Random(seed)  # noqa: S311  # a world, no secret

    def off(beliefs: Mapping[str, Belief]) -> dict[str, Belief]:
        return {
            name: Belief(one.seconds * math.exp(dice.gauss(0, one.spread)), one.spread) for name, one in sorted(beliefs.items())
        }

    world = Estimates(off(estimates.trials), off(estimates.metrics), estimates.overheads)
    return lambda piece, _, __: world.seconds(piece)
