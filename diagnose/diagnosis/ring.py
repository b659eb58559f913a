"""Tracebacks of several ranks -> the rank that stands between two which lost it, in the ring of Gloo's all-reduce.

Gloo sums in a ring: a rank receives from one neighbour and sends to the other, so only the two neighbours of a rank that goes
notice at once. Those behind them notice when these two have gone, and a launcher is often quicker. The ring has all ranks, in
their order, only if the call names no group.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from diagnose.diagnosis.evidence import Evidence
from diagnose.diagnosis.hypotheses import Hypothesis, captures

_LEAST = 5
"""in a ring of four, two ranks stand between the same two"""
_LOST = re.compile(r"third_party/gloo/gloo/transport/tcp/pair\.cc")
_OF_ALL = re.compile(
    r"(?:\w+\.)*all_reduce\([\w.\[\]]+(?:, *(?:op *= *)?(?:\w+\.)*ReduceOp\.\w+)?(?:, *async_op *= *\w+)?\)(?:\.wait\(\))?$"
)
"""a whole call that names no group"""


def between(told: Sequence[Hypothesis], spoke: Collection[int], known: Collection[int], evidence: Evidence) -> list[int]:
    """The rank that fell silent between two that ``told`` of a lost peer, if there is one only.

    ``spoke`` are all that complained, ``known`` all that have a log.
    """
    size = len(known)
    if size < _LEAST or set(known) != set(range(size)):
        return []
    lost = {
        rank: captures(one.rule, one.event.body).get("host")
        for hypothesis in told
        for one in (hypothesis, *hypothesis.same)
        if (rank := evidence.rank_of(one.event)) is not None and _in_the_whole_ring(one, evidence)
    }
    found = []
    for rank in range(size):
        one, other = (rank - 1) % size, (rank + 1) % size
        if rank not in spoke and one in lost and other in lost and lost[one] == lost[other]:
            found.append(rank)
    return found if len(found) == 1 else []


def _in_the_whole_ring(one: Hypothesis, evidence: Evidence) -> bool:
    """Whether a call of all ranks failed."""
    if one.traceback is None or _LOST.search(one.event.body) is None:
        return False
    if not any(frame.library and frame.function == "all_reduce" for frame in one.traceback.frames):
        return False
    within = (
        event.body.strip()
        for event in evidence.events
        if event.source == one.traceback.source and one.traceback.begin <= event.line <= one.traceback.end
    )
    calls = [text for text in within if "all_reduce(" in text]
    return bool(calls) and all(_OF_ALL.match(text) for text in calls)
