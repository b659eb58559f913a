"""One cause, many jobs: a switch or a file system that fails hits a hundred jobs at once. That is one incident, not a hundred.

Failures are counted by family (``bursts.families``), because a dead switch shows as time-outs here and as refused connections
there. An incident opens when so many jobs failed from one family within a window. It stays open while actions are still decided
because of it. Jobs in it wait, each time longer and each for a slightly different time, so that they do not come back all at
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.backoff import Backoff
from diagnose.decision.history import Failure, History
from diagnose.decision.policy import Bursts, Policy

ORDINARY = frozenset({"preempted", "healthy"})
"""failures that may be many at once without an incident: for example, jobs made room for others"""


@dataclass(frozen=True, slots=True)
class Incident:
    """An open incident, as one job sees it."""

    key: str
    jobs: int
    """jobs that failed within the window"""
    first: bool
    """nothing was decided because of it yet: this decision informs people"""
    rounds: int
    """how often this job waited in it before"""


def incident(job: str, attempt: int, reason: str, history: History, policy: Policy, now: float) -> Incident | None:
    """The incident that a failure belongs to, if there is one."""
    bursts = policy.bursts
    family = bursts.family(reason)
    if reason in ORDINARY:
        return None
    recent = [one for one in history.failures if now - bursts.within_s <= one.at <= now and bursts.family(one.reason) == family]
    jobs = {one.job for one in recent} | {job}
    named = [
        action
        for action in history.actions
        if action.incident is not None
        and action.incident.startswith(f"{family}@")
        and 0 <= now - action.at <= bursts.hold_most_s
        and (action.job, action.attempt) != (job, attempt)
    ]
    if named:
        key = max(named, key=lambda action: action.at).incident
        assert key is not None
        mine = sum(action.incident == key and action.job == job for action in history.actions)
        return Incident(key, len(jobs), False, mine)
    if len(jobs) < bursts.jobs:
        return None
    begin = min((one.at for one in recent), default=now)
    return Incident(f"{family}@{int(begin)}", len(jobs), True, 0)


def hold_s(job: str, rounds: int, bursts: Bursts) -> float:
    """How long a job waits; spread by half as much again. Each caller gets the same for the same job."""
    hold = Backoff(bursts.hold_s, bursts.hold_most_s).after(rounds + 1)
    spread = int.from_bytes(hashlib.sha256(job.encode("utf-8", "surrogatepass")).digest()[:4], "big") / 2**32
    return hold * (1 + spread / 2)


def burst_at(failure: Failure, failures: Sequence[Failure], policy: Policy) -> bool:
    """Whether a failure was one of many of its family at that time."""
    bursts = policy.bursts
    family = bursts.family(failure.reason)
    jobs = {one.job for one in failures if abs(one.at - failure.at) <= bursts.within_s and bursts.family(one.reason) == family}
    return len(jobs) >= bursts.jobs
