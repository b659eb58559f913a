"""Order -> whether the scheduler confirms it. A log is evidence; it has no authority.

The scheduler is asked when something is decided, and the executor asks again before it acts. If the service has no scheduler
(only a webhook, a program, or a runner elsewhere), the administrator's bindings of the senders' tokens decide. Without
confirmation there is no order: the action waits for a person and shows the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from service.acting.executors.claim import Confirmed, Unconfirmed
from service.acting.executors.configuration import Configured, choose
from service.acting.executors.executor import Order, Problem, Scheduler

log = logging.getLogger("diagnose.authority")
_FRESH_S = 30.0
"""nodes do not come and go faster"""
_STALE_S = 3600.0
"""after so long without an answer, the number of nodes counts as unknown"""
_JOB_LABELS = ("slurm.job_id", "slurm_job_id", "SLURM_JOB_ID")


class Authority:
    """What others than the log say about jobs and nodes."""

    def __init__(self, executors: Sequence[Configured], clock: Callable[[], float] = time.monotonic) -> None:
        self._executors, self._clock = tuple(executors), clock
        self._nodes: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        """Whether the order is confirmed. Never raises."""
        by = choose(self._executors, order)
        if by is not None and isinstance(by.executor, Scheduler):
            try:
                return await by.executor.confirm(order)
            except Exception as error:
                log.exception("executor %s", by.name)
                return Unconfirmed(f"{by.name} failed to ask for the job: {type(error).__name__}", for_now=True)
        return _by_binding(order)

    async def nodes(self) -> tuple[str, ...] | None:
        """The names of all nodes of all schedulers. None if there is no scheduler, or one has not answered for long."""
        found: dict[str, None] = {}
        asked = [one for one in self._executors if isinstance(one.executor, Scheduler)]
        for one in asked:
            names = await self._nodes_of(one)
            if names is None:
                return None
            found |= dict.fromkeys(names)
        return tuple(found) if asked else None

    async def _nodes_of(self, by: Configured) -> tuple[str, ...] | None:
        assert isinstance(by.executor, Scheduler)
        at, known = self._nodes.get(by.name, (float("-inf"), ()))
        if self._clock() - at < _FRESH_S:
            return known
        try:
            known = await by.executor.inventory()
        except Problem as problem:
            log.warning("executor %s cannot list the nodes: %s", by.name, problem.what)
            return known if self._clock() - at < _STALE_S else None
        self._nodes[by.name] = self._clock(), known
        return known


def _by_binding(order: Order) -> Confirmed | Unconfirmed:
    """Without a scheduler: the administrator must have bound the tokens to the job's name and to the name in its labels."""
    claim, job = order.claim, order.job or ""
    if claim is None or not claim.speakers:
        return Unconfirmed("nobody who may speak for the job has sent its log")
    names = [job, *(order.labels[label] for label in _JOB_LABELS if label in order.labels)]
    for name in names:
        if not claim.bound_to(name):
            return Unconfirmed(
                f"no scheduler can confirm it, and not all of the tokens that sent its data are bound to the "
                f"name {name[:80]!r} (tokens create --job)"
            )
    namespace = order.labels.get("namespace")
    if namespace is not None and not claim.for_namespace(namespace):
        return Unconfirmed(f"not all of the tokens that sent its data may speak for the namespace {namespace[:80]!r}")
    owner = order.labels.get("user", "")
    return Confirmed(job, owner if owner and claim.for_user(owner) else "", claim.nodes)
