"""What a job can go back to: the checkpoints in its log, and which of them to use when the loss went wrong.

A checkpoint of step n holds the weights after n steps. Batch n is the one that step n trains on. Checkpoints shortly before the
onset are not trusted either, because the loss shows a few steps later what the weights took in. ``start`` says where the next
attempt begins after roll-backs were decided: at the newest healthy checkpoint, without the bad batches.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from diagnose.decision.history import Checkpoint
from diagnose.decision.policy import Rollback
from diagnose.knowledge.rules import Rule
from diagnose.reading.prefixes import body_start

MOST = 256
_SAVES = re.compile(rb"heckpoint|saving model")
_MOST_STEP = 10**12


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint, as the training side reported it."""

    attempt: int
    step: int
    path: str
    healthy: bool | None = None
    """None: nobody said"""
    why: str | None = None
    at: float | None = None
    doubt: str | None = None
    """why a roll-back should not take it, although the training does not call it bad"""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something went wrong in an attempt that is not about its numbers."""

    attempt: int
    step: int
    kind: str
    """hang or hardware"""
    said: str


@dataclass(frozen=True, slots=True)
class JudgedCheckpoint:
    attempt: int
    step: int
    path: str
    at: float | None
    good: bool | None
    """False: no attempt starts from it; None: nobody knows yet"""
    why: str | None


@dataclass(frozen=True, slots=True)
class PastRollback:
    """A decision: what this attempt and those before it saved after batch ``first`` is spoilt."""

    attempt: int
    first: int
    last: int
    """first and last batch to skip, both included"""


@dataclass(frozen=True, slots=True)
class Start:
    step: int | None
    path: str | None
    skip: list[tuple[int, int]]
    """in order, without overlaps"""
    why: str


def saved(facts: Iterable[tuple[int, bytes]], rules: Sequence[Rule]) -> tuple[Checkpoint, ...]:
    """The checkpoints in lines that were set aside, oldest first; if there are many, the newest."""
    import regex

    telling = [
        (regex.compile(rule.pattern), "-saved-" in rule.id)
        for rule in rules
        if rule.facts and rule.id.startswith("checkpoint-") and "(?P<step>" in rule.pattern and "(?P<path>" in rule.pattern
    ]
    read: dict[bytes, list[Checkpoint]] = {}  # ranks say the same
    found: dict[int, Checkpoint] = {}
    for _, words in facts if telling else ():
        body = words[body_start(words) :] if _SAVES.search(words) else b""
        if body and body not in read:
            text = body.decode("utf-8", "replace")
            matches = ((pattern.search(text, timeout=0.05), complete) for pattern, complete in telling)
            read[body] = [Checkpoint(int(one["step"]), one["path"], complete=complete) for one, complete in matches if one]
        for one in read.get(body, ()):
            if one.step < _MOST_STEP:
                found.pop(one.step, None)  # saved again after a roll-back: the later one counts
                found[one.step] = one
    return tuple(sorted(found.values(), key=lambda one: one.step)[-MOST:])


def stretch(onset: float, last: float | None, rollback: Rollback, wider: int = 0) -> tuple[int, int]:
    """The batches to leave out for an anomaly that began at ``onset``. They double each time that it comes back."""
    begin = int(onset)
    back = max(rollback.back_least, int(begin * rollback.back_share)) << min(wider, 8)
    most = rollback.skip_most << min(wider, 8)
    end = int(last) if last is not None and last > onset else begin
    return max(0, begin - back), min(end, begin + most)


def alarmed(checkpoints: Iterable[Saved], alarms: Iterable[Alarm]) -> dict[tuple[int, int], str]:
    """(attempt, step) of the checkpoints that an alarm followed before the next one was saved -> what it was.

    The last one of an attempt is not among them: it has no next one, and an attempt that began there may prove it.
    """
    steps: dict[int, list[int]] = {}
    for one in checkpoints:
        steps.setdefault(one.attempt, []).append(one.step)
    found = {}
    for alarm in alarms:
        saved = sorted(steps.get(alarm.attempt, ()))
        before = bisect_right(saved, alarm.step)
        if 0 < before < len(saved):
            found[alarm.attempt, saved[before - 1]] = f"before the next checkpoint, at step {alarm.step:,}: {alarm.said}"
    return found


def doubted(checkpoints: Iterable[Saved], doubts: Mapping[tuple[int, int], str]) -> list[Saved]:
    """The checkpoints with what speaks against them: (attempt, step) -> why. What is doubted is not called good."""
    found = []
    for one in checkpoints:
        doubt = doubts.get((one.attempt, one.step))
        if doubt is not None and one.healthy is not False:
            one = replace(one, healthy=None, why=doubt, doubt=doubt)
        found.append(one)
    return found


def newest(checkpoints: Iterable[Checkpoint], at_most: int, below: int | None = None) -> Checkpoint | None:
    """The newest checkpoint of step ``at_most`` or before, and before ``below`` if that was tried already."""
    known = list(checkpoints)
    spoilt = {one.step for one in known if one.healthy is False}  # another report of the same checkpoint
    good = [one for one in known if one.step <= at_most and one.step not in spoilt and (below is None or one.step < below)]
    proven = [one for one in good if one.healthy]  # a training that judges its checkpoints goes back only to what it calls good
    doubtful = {one.step for one in good if one.doubt is not None}
    good = [one for one in good if one.step not in doubtful] or good
    # The training's own report counts more than the log, and a complete checkpoint more than a begun one.
    return max(
        proven or good, key=lambda one: (one.step, one.complete, one.told_by == "api", one.path is not None), default=None
    )


def start(checkpoints: Iterable[Saved], rollbacks: Iterable[PastRollback]) -> Start:
    """From where the next attempt starts, and what it leaves out."""
    decided = list(rollbacks)
    known = list(checkpoints)
    usable = [one for one in known if one.healthy is not False and _spoilt_by(one, decided) is None]
    back = max((bad.attempt for bad in decided), default=-1)
    if any(one.healthy and one.attempt <= back for one in usable):  # it judges them: then it goes back to what is proven
        usable = [one for one in usable if one.healthy or one.attempt > back]
    if decided:
        usable = [one for one in usable if one.doubt is None or one.attempt > back] or usable
    last = max(usable, key=lambda one: (one.step, one.attempt), default=None)
    skip = [
        (first, end) for first, end in _joined((bad.first, bad.last) for bad in decided) if last is None or end >= last.step
    ]
    if last is None:
        why = "No checkpoint was reported that can be used." if known else "No checkpoint was reported."
    elif len(usable) < len(known):
        why = f"The newest healthy checkpoint is of step {last.step}; {len(known) - len(usable)} were set aside."
    else:
        why = f"The newest checkpoint is of step {last.step}."
    return Start(last.step if last else None, last.path if last else None, skip, why)


def judged(checkpoints: Iterable[Saved], rollbacks: Iterable[PastRollback]) -> list[JudgedCheckpoint]:
    """Each checkpoint with its verdict, the highest step first."""
    decided = list(rollbacks)
    found = []
    for one in sorted(checkpoints, key=lambda one: (one.step, one.attempt), reverse=True):
        bad = _spoilt_by(one, decided)
        good, why = one.healthy, one.why
        if bad is not None and good is not False:
            good, why = False, f"it was saved after batch {bad.first:,}, from which a roll-back goes back"
        found.append(JudgedCheckpoint(one.attempt, one.step, one.path, one.at, good, why))
    return found


def _spoilt_by(one: Saved, decided: Sequence[PastRollback]) -> PastRollback | None:
    """A checkpoint of a later attempt is not spoilt by the batches of an earlier one, because it skipped them."""
    return next((bad for bad in decided if one.attempt <= bad.attempt and one.step > bad.first), None)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted((first, last) for first, last in ranges if first <= last):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
