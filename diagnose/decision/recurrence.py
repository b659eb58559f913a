"""What the attempts of a job show together: it fails in the same way at the start, or at one place in its data, or too often
without progress.

The last of them is the attempt that is decided about. Attempts that failed in an incident do not count here: if a file system
was away, that is not the job's fault, and must not use up its restarts.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.decision.history import History, PastAction, PastAttempt
from diagnose.decision.policy import Budget, Policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Diagnosis

_NOT_TRAINING = frozenset({"start-up", "save a checkpoint", "load a checkpoint", "evaluate"})


def attempts_of(
    number: int, diagnosis: Diagnosis, history: History, own: Sequence[PastAction], now: float
) -> list[PastAttempt]:
    """The attempts up to the one that is decided about, oldest first, without those that failed in an incident.

    ``own``: the actions on this job.
    """
    excused = {action.attempt for action in own if action.incident is not None}
    before = [one for one in history.attempts if one.number < number and one.number not in excused]
    last = PastAttempt(
        number=number,
        started=history.started if history.started is not None else now,
        ended=history.ended if history.ended is not None else now,
        reason=diagnosis.reason,
        group=diagnosis.group,
        phase=diagnosis.phase,
        by=diagnosis.by,
        nodes=history.nodes,
        suspects=tuple(diagnosis.suspects.nodes),
        first_step=history.first_step,
        last_step=diagnosis.step,
        progress_s=history.progress_s,
    )
    return [*sorted(before, key=lambda one: one.number), last]


def alike_at_startup(attempts: Sequence[PastAttempt]) -> int:
    """How often in a row, with the last one, the same failure came before the first step."""
    last = attempts[-1]
    count = 0
    for one in reversed(attempts):
        if not _at_startup(one) or one.reason != last.reason or one.group != last.group:
            break
        count += 1
    return count


def same_place(attempts: Sequence[PastAttempt], policy: Policy) -> PastAttempt | None:
    """An earlier attempt that failed in the same way at the same step in the middle of its training. Then the data is at
    fault.
    """
    last = attempts[-1]
    if (
        last.last_step is None
        or (last.reason is not None and shipped_taxonomy().has(last.reason, "not_the_data"))
        or last.phase in _NOT_TRAINING
        or _at_startup(last)
    ):
        return None
    for one in reversed(attempts[:-1]):
        alike = one.group == last.group if one.group and last.group else one.reason == last.reason
        if alike and one.last_step is not None and abs(one.last_step - last.last_step) <= policy.rollback.same_step:
            return one
    return None


def fruitless(attempts: Sequence[PastAttempt], budget: Budget, now: float) -> int:
    """How often in a row, with the last one, it failed for this reason without progress in between.

    Other reasons have their own count: they neither add to this one nor end it. An attempt that made progress ends it, and is
    the first of a new row.
    """
    reason = attempts[-1].reason
    count = 0
    best: list[float | None] = [None]
    """how far the job had come before each attempt"""
    for one in attempts:
        known = [step for step in (best[-1], one.last_step) if step is not None]
        best.append(max(known, default=None))
    for index in range(len(attempts) - 1, -1, -1):
        one = attempts[index]
        if now - (one.ended if one.ended is not None else one.started) > budget.within_s:
            break
        count += one.reason == reason
        if progressed(one, budget, best[index]):
            break
    return max(1, count)


def progressed(attempt: PastAttempt, budget: Budget, best: float | None) -> bool:
    """Whether an attempt was worth while: it made steps for long enough, beyond the point where the job had been before."""
    if attempt.last_step is not None and best is not None and attempt.last_step <= best:
        return False  # it only repeated steps
    if attempt.progress_s is not None:
        return attempt.progress_s >= budget.progress_s
    if attempt.last_step is None or attempt.first_step is None or attempt.ended is None:
        return False
    return attempt.last_step > attempt.first_step and attempt.ended - attempt.started >= budget.progress_s


def _at_startup(attempt: PastAttempt) -> bool:
    """Whether it failed before its first step: by its steps if they are known, else by the diagnosis."""
    if attempt.last_step is not None and attempt.first_step is not None:
        return attempt.last_step <= attempt.first_step
    return attempt.last_step is None and attempt.phase in (None, "start-up", "load a checkpoint", "load data")
