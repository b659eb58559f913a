"""An action -> what a yes to it means: who carries it out, what it touches, and what happens if nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.acting.executors.configuration import Configured, choose
from service.acting.executors.executor import RESTARTS, TAKES_OUT, Order
from service.dashboard.words import span
from service.runtime import Service

_RUNNER_S: Final = 120.0
"""a runner that has asked for orders so lately is there"""
_TRIAL_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Hands:
    """Who could carry out an approved action."""

    executors: tuple[Configured, ...]
    runner: bool
    """a runner asks for orders"""

    @staticmethod
    def of(service: Service, now: float) -> Hands:
        seen = service.runner_at
        return Hands(service.dispatch.executors, seen is not None and now - seen < _RUNNER_S)

    @property
    def any(self) -> bool:
        return self.runner or bool(self.executors)

    def said(self, order: Order) -> tuple[bool, str]:
        """(whether somebody would carry the order out, who in words)."""
        chosen = choose(self.executors, order)
        if chosen is not None:
            trial = ", which only says what it would do (dry_run)" if chosen.dry_run else ""
            return not chosen.dry_run, f"the executor {chosen.name} ({chosen.type}){trial}"
        if self.runner:
            return True, "a runner that asks this service for orders"
        if self.executors:
            names = ", ".join(one.name for one in self.executors)
            return False, f"nobody: none of the executors ({names}) is for this action, and no runner asks for orders"
        return False, "nobody: the service has no executor, and no runner asks for orders"


def touched(order: Order, others: Sequence[dict[str, Any]], nodes: int, isolated: int) -> list[str]:
    """Sentences: what the order changes, and whom it meets. ``others``: other jobs that run on its nodes."""
    said = []
    out = order.nodes if order.kind in TAKES_OUT else ()
    if out:
        left = max(0, nodes - isolated - len(out))
        said.append(f"No new job is placed on {', '.join(out)}; {left:,} of {nodes:,} known nodes are left in service.")
        names = ", ".join(one["name"] for one in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        said.append(
            f"Other jobs run there now, and the executor does not end them: {names}{more}."
            if others
            else "No other job that this service knows runs there."
        )
    if order.kind in RESTARTS and order.job is not None:
        begin = order.restart_from or {}
        since = f" from step {begin['step']:,}" if begin.get("step") is not None else " from where it finds its last checkpoint"
        said.append(f"Job {order.job} is started again{since}.")
    if order.avoid:
        said.append(f"The restart leaves out {', '.join(order.avoid[:8])}, which stay in service.")
    if order.kind == "hold":
        said.append(f"Job {order.job} is held: its controller does not start it again until somebody lets it go.")
    if order.kind == "reboot":
        said.append(
            f"{', '.join(order.nodes)} is rebooted as soon as no job runs there. What is isolated stays isolated after that."
        )
    if order.kind == "release":
        said.append(f"Jobs may be placed on {', '.join(order.nodes)} again.")
    return said


def silence(state: str, expires: float | None, now: float) -> str | None:
    """What happens if nobody answers."""
    if expires is None or state not in ("proposed", "approved"):
        return None
    left = span(max(0.0, expires - now))
    if state == "proposed":
        return f"It expires in {left}. Then nothing is done, the job stays as it is, and the trail says that nobody answered."
    return f"If nobody takes it, it expires in {left}, and nothing is done."


async def tried(executors: Sequence[Configured], order: Order) -> str:
    """What the executor says that it would do, from a dry run. Nothing is changed."""
    chosen = choose(executors, order)
    if chosen is None:
        return "No executor of this service is for this action. A runner can be asked where it runs: its own dry run."
    try:
        async with asyncio.timeout(_TRIAL_S):
            outcome = await chosen.executor.carry_out(order, dry_run=True)
    except TimeoutError:
        return f"{chosen.name} has not answered within {_TRIAL_S:.0f} s."
    return f"{chosen.name}: {outcome.what}" if outcome.state == "succeeded" else f"{chosen.name} could not: {outcome.what}"
