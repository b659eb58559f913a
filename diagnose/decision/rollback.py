"""Where a job goes on after its loss went wrong: the newest healthy checkpoint before it, without the batches that did it.

Values in, value out. A checkpoint of step n was saved after n steps, and batch n is the one that the next step trains on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint, as the training side reported it."""

    attempt: int
    step: int
    path: str
    healthy: bool | None = None
    """None: nobody said"""


@dataclass(frozen=True, slots=True)
class RollBack:
    """A decision: what this attempt and those before it saved after batch ``first`` is spoilt."""

    attempt: int
    first: int
    last: int
    """the batches to skip, both included"""


@dataclass(frozen=True, slots=True)
class Start:
    step: int | None
    path: str | None
    skip: list[tuple[int, int]]
    """in order, apart from each other"""
    why: str


def start(checkpoints: Iterable[Saved], rollbacks: Iterable[RollBack]) -> Start:
    """From where the next attempt starts, and what it leaves out.

    What a later attempt saved is not spoilt by what an earlier one met: it had skipped those batches.
    """
    decided = list(rollbacks)
    known = list(checkpoints)
    usable = [
        one
        for one in known
        if one.healthy is not False and not any(one.attempt <= bad.attempt and one.step > bad.first for bad in decided)
    ]
    newest = max(usable, key=lambda one: (one.step, one.attempt), default=None)
    skip = [
        (first, last)
        for first, last in _joined((bad.first, bad.last) for bad in decided)
        if newest is None or last >= newest.step
    ]
    if newest is None:
        why = "No checkpoint was reported that can be used." if known else "No checkpoint was reported."
    elif len(usable) < len(known):
        why = f"The newest healthy checkpoint is of step {newest.step}; {len(known) - len(usable)} were set aside."
    else:
        why = f"The newest checkpoint is of step {newest.step}."
    return Start(newest.step if newest else None, newest.path if newest else None, skip, why)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted((first, last) for first, last in ranges if first <= last):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
