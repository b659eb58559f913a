r"""The life of an action, as values: what may happen to it, who may do it, and that nothing is done twice.

    proposed -> approved -> dispatched -> running -> succeeded | failed
        \-> rejected   \-> expired, from any state before the end

- **Idempotent.** ``key_of`` names an action by job, attempt, group, kind and nodes. Two processes that decide the same propose
  the
  same key, and a store holds one record per key. If they decide different actions for one attempt, ``admit`` chooses.
- **One acts.** A claim gives a lease and a fence, a number that only grows. An executor must ``start`` with its fence before it
  touches anything. An older fence is refused. If a lease lapses *before* the start, the action can be claimed again, a few
  times. If it
  lapses *after* the start, nobody knows what was done: the action expires, and a person looks. It is done at most once, not at
  least once.
- **After a crash** the executor that took an action, and nobody else, may ``resume`` it. It gets a new fence, which shuts out
  what is
  left of the old process. It must look at the cluster before it acts; one that cannot look reports instead.
- **Late results count** if they say what nobody knew: after a lapsed lease or an expiry. They never change an end that a result
  made. Then they are kept in ``notes``.
- **Clocks jump.** Time here never runs backwards (``changed`` is a floor). A lease that seems to last longer than a lease does
  is cut,
  so that a clock that was set back does not hold an action for hours. Fences, not clocks, keep two executors apart.

Each function takes a record and returns the next one, or the same if there is nothing to change, or raises ``Refused``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from diagnose.decision.clauses import Mode
from diagnose.decision.policy import HOLD, LifeSpans
from diagnose.errors import DiagnoseError

State = Literal["proposed", "approved", "dispatched", "running", "succeeded", "failed", "expired", "rejected"]
ENDED: Final = frozenset({"succeeded", "failed", "expired", "rejected"})
UNDONE: Final = frozenset({"proposed", "approved"})
"""nobody has taken it yet: another may replace it"""
_MOST_NOTES = 50


class Refused(DiagnoseError):
    """The action is in a state that does not allow what is asked for. The service answers 409."""


@dataclass(frozen=True, slots=True)
class Record:
    """An action and what happened to it."""

    key: str
    job: str
    attempt: int
    kind: str
    mode: Mode
    state: State
    created: float
    changed: float
    expires: float
    """when it is given up unless somebody approves or takes it"""
    not_before: float = 0.0
    decided_by: str | None = None
    """who approved or rejected it"""
    claimed_by: str | None = None
    fence: int = 0
    lease_until: float | None = None
    claims: int = 0
    result: str | None = None
    late: bool = False
    """the result came after the lease had lapsed"""
    notes: tuple[str, ...] = ()


def key_of(job: str, attempt: int, group: str | None, kind: str, nodes: Iterable[str]) -> str:
    """The name of an action: the same for any process that decides it, at any time."""
    parts = json.dumps([job, attempt, group, kind, sorted(set(nodes))], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def unused(key: str, existing: Mapping[str, Record]) -> str:
    """``key``, or one that follows from it if the action of this name was withdrawn: an alarm that was over may come again."""
    turn = 1
    found = key
    while found in existing and existing[found].state == "rejected" and existing[found].decided_by == "decision":
        turn += 1
        found = hashlib.sha256(f"{key}.{turn}".encode()).hexdigest()[:32]
    return found


def propose(
    key: str, job: str, attempt: int, kind: str, mode: Mode, now: float, spans: LifeSpans, not_before: float | None = None
) -> Record:
    """A new action. In mode auto the policy approves it at once; in mode observe nobody ever can."""
    begin = max(now, not_before or now)
    proposed = Record(
        key=key,
        job=job,
        attempt=attempt,
        kind=kind,
        mode=mode,
        state="proposed",
        created=now,
        changed=now,
        expires=begin + spans.approve_within_s,
        not_before=begin,
    )
    return approve(proposed, "policy", now, spans) if mode == "auto" else proposed


def approve(record: Record, who: str, now: float, spans: LifeSpans) -> Record:
    """A person approves it. ``Policy.may_approve`` says whether that person may."""
    record = tick(record, now, spans)
    if record.state != "proposed":
        if record.state in ("approved", "dispatched", "running", "succeeded"):
            return record  # approved before: a second click is no error
        raise _refused(record, "approved", "decide again: a later report may propose it")
    if record.mode == "observe":
        raise Refused(
            "the policy only observes",
            where=record.key,
            remedy="set the mode to approve or auto in the policy, and wait for the next decision",
        )
    return _next(record, now, state="approved", decided_by=who, expires=max(now, record.not_before) + spans.start_within_s)


def reject(record: Record, who: str, why: str, now: float, spans: LifeSpans) -> Record:
    """A person rejects it. That is possible until an executor has taken it."""
    record = tick(record, now, spans)
    if record.state == "rejected":
        return record
    if record.state not in UNDONE:
        raise _refused(record, "rejected", "it is under way or over: undo it by hand, or by the opposite action")
    return _next(record, now, state="rejected", decided_by=who, result=why)


def claim(record: Record, who: str, now: float, spans: LifeSpans) -> Record:
    """An executor takes the action, with a lease and a new fence."""
    record = tick(record, now, spans)
    if record.state != "approved":
        raise _refused(record, "claimed", "ask for other work")
    if _floor(record, now) < record.not_before:
        raise Refused("it must not be done yet", where=record.key, remedy=f"ask again in {record.not_before - now:.0f} s")
    until = _floor(record, now) + spans.lease_s
    return _next(
        record, now, state="dispatched", claimed_by=who, fence=record.fence + 1, claims=record.claims + 1, lease_until=until
    )


def start(record: Record, fence: int, now: float, spans: LifeSpans) -> Record:
    """The executor is about to act. This is the last point at which it can be told not to."""
    record = tick(record, now, spans)
    if record.state == "running" and fence == record.fence:
        return record
    if record.state != "dispatched" or fence != record.fence:
        raise _refused(record, f"started with fence {fence}", "do nothing: the lease lapsed, or another executor has it")
    return _next(record, now, state="running", lease_until=_floor(record, now) + spans.lease_s)


def renew(record: Record, fence: int, now: float, spans: LifeSpans) -> Record:
    """The executor says that it is still at work, and its lease is renewed."""
    record = tick(record, now, spans)
    if record.state not in ("dispatched", "running") or fence != record.fence:
        raise _refused(record, f"renewed with fence {fence}", "stop: the lease lapsed, or another executor has it")
    return _next(record, now, lease_until=_floor(record, now) + spans.lease_s)


def resume(record: Record, who: str, now: float, spans: LifeSpans) -> Record:
    """The executor that has it goes on after a crash of its own, under a new fence.

    It may do so too if its lease has lapsed and nobody has noticed yet, but not for longer than an action may wait to begin.
    """
    if record.state not in ("dispatched", "running") or record.claimed_by != who or record.lease_until is None:
        raise _refused(record, f"resumed by {who}", "leave it: it is over, or in other hands")
    if _floor(record, now) >= record.lease_until + spans.start_within_s:
        raise Refused(
            "was under way for too long without news",
            where=record.key,
            remedy="let a person check what was done, and decide again",
        )
    return _next(record, now, fence=record.fence + 1, lease_until=_floor(record, now) + spans.lease_s)


def finish(record: Record, fence: int, succeeded: bool, said: str, now: float, spans: LifeSpans) -> Record:
    """Record the result of the action, however late it comes."""
    record = tick(record, now, spans)
    if not 1 <= fence <= record.fence:
        raise Refused(f"fence {fence} was never given out", where=record.key, remedy="claim the action first")
    state: State = "succeeded" if succeeded else "failed"
    if record.state == "running" and fence == record.fence:
        return _next(record, now, state=state, result=said, lease_until=None)
    if record.state == state and record.result == said:
        return record  # the same result was reported twice
    if record.state == "expired" and (fence == record.fence or succeeded):
        return _next(record, now, state=state, result=said, late=True, lease_until=None)
    if record.state in ("approved", "dispatched") and succeeded:
        # Its lease lapsed before it reported a start, but it is done. Nobody else may do it again.
        return _next(
            record, now, state=state, result=said, late=fence < record.fence or record.state == "approved", lease_until=None
        )
    if record.state == "dispatched" and fence == record.fence:
        return _next(record, now, state=state, result=said, lease_until=None)  # it failed before it could begin
    return _noted(record, now, f"fence {fence} says {state}: {said}")


def tick(record: Record, now: float, spans: LifeSpans) -> Record:
    """Let time act on an action: leases lapse and actions expire."""
    now = _floor(record, now)
    if record.state in UNDONE:
        if now >= record.expires:
            wanted = "nobody said yes in time" if record.state == "proposed" else "no executor took it in time"
            return _next(record, now, state="expired", result=wanted)
        return record
    if record.state in ENDED or record.lease_until is None:
        return record
    if record.lease_until - now > spans.lease_s:  # the clock was set back
        return replace(record, lease_until=now + spans.lease_s)
    if now < record.lease_until:
        return record
    if record.state == "running":
        return _next(
            record, now, state="expired", result=f"{record.claimed_by} began and was not heard of again", lease_until=None
        )
    if record.claims >= spans.claims:
        return _next(record, now, state="expired", result=f"taken {record.claims} times, never begun", lease_until=None)
    record = _noted(record, now, f"{record.claimed_by} took it and did not begin (fence {record.fence})")
    return _next(record, now, state="approved", claimed_by=None, lease_until=None, expires=now + spans.start_within_s)


def withdraw(record: Record, why: str, now: float, spans: LifeSpans) -> Record:
    """Withdraw the action, because the diagnosis changed before an executor took it."""
    return reject(record, "decision", why, now, spans)


Verdict = Literal["insert", "same", "replace", "refuse"]


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a new action may be added to the existing ones for the same attempt."""

    verdict: Verdict
    withdraw: tuple[str, ...] = ()
    """keys of actions that it replaces"""
    because: str = ""


def admit(key: str, existing: Sequence[Record], kind: str) -> Admission:
    """Choose between actions that two processes decided. ``existing``: all of this attempt, read in the transaction that
    inserts. ``kind``: of the new one. Who does not want a job held has not said no to its restart.
    """
    if any(record.key == key for record in existing):
        return Admission("same", because="it was proposed before")
    refused = [record for record in existing if record.state == "rejected" and record.decided_by != "decision"]
    if any(record.kind != HOLD or kind == HOLD for record in refused):
        return Admission("refuse", because="a person said no to an action for this attempt")
    begun = [record for record in existing if record.state not in UNDONE and record.state != "rejected"]
    if blocking := [record for record in begun if not (record.state == "expired" and record.fence == 0)]:
        return Admission("refuse", because=f"this attempt was answered by {blocking[0].kind} ({blocking[0].state})")
    undone = tuple(record.key for record in existing if record.state in UNDONE)
    return Admission("replace", undone, "a later decision on the same attempt") if undone else Admission("insert")


def _floor(record: Record, now: float) -> float:
    return max(now, record.changed)


def _next(record: Record, now: float, **changes: object) -> Record:
    return replace(record, changed=_floor(record, now), **changes)  # type: ignore[arg-type]


def _noted(record: Record, now: float, note: str) -> Record:
    if record.notes and record.notes[-1] == note:
        return record
    return replace(record, notes=(*record.notes, note)[-_MOST_NOTES:])


def _refused(record: Record, asked: str, remedy: str) -> Refused:
    return Refused(f"is {record.state} and cannot be {asked}", where=record.key, remedy=remedy)
