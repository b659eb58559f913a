"""Approved orders -> outcomes. One executor takes an order, it is done once, and the result is reported.

The steps of an order: claim it (with a fence), begin it (the last check that it is allowed), carry it out while the lease is
renewed, finish it. It may be interrupted anywhere:

- Before it began, nothing was done, so it is simply claimed again.
- After that, the same executor goes on when it comes back (``resume``, under its own name and with a new fence). It gives the
  order again, and an order looks at the cluster first. An executor that cannot look is not asked again: a person is told.

If an order fails for now, or its end is unknown, it is tried again with growing waits until the executor's patience is over.
The same loop works in a service next to its database and in a runner that polls: orders come from an ``OrderSource``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from service.acting.actions import InHand, Taken
from service.acting.executors.configuration import Configured, choose
from service.acting.executors.executor import CHECK, Order, Outcome
from service.acting.executors.nodecheck import Tested
from service.errors import Busy, Conflict, Unavailable, Unknown
from service.events import Events
from service.journal import sync_folder

log = logging.getLogger("diagnose.dispatch")
_GONE = (Conflict, Unknown)
_BACKOFF = Backoff(1.0, 30.0, spread=0.2)
Ended = Callable[[str, str, Order, float], None]
"""(executor, result, order, since when it was at it)"""


class OrderSource(Protocol):
    """Where orders come from and results go to, such as ``Actions``. It refuses with the errors of ``service.errors``."""

    async def orders(self) -> list[dict[str, Any]]:
        """The orders that may be claimed now."""

    async def in_hand(self, whose: str) -> list[InHand]:
        """Claimed and unfinished orders of executors whose names begin with ``whose``."""

    async def claim(self, action_id: int, who: str) -> Taken: ...

    async def resume(self, action_id: int, who: str) -> Taken: ...

    async def begin(self, action_id: int, who: str, fence: int) -> object: ...

    async def renew(self, action_id: int, who: str, fence: int) -> object: ...

    async def finish(
        self, action_id: int, who: str, fence: int, succeeded: bool, said: str, isolated: Sequence[str] | None = None
    ) -> object:
        """Report the result. ``isolated``: as in ``Outcome``."""

    async def checked(self, verdict: dict[str, Any], who: str) -> object:
        """Report the result of a node check."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the dispatcher looks for orders, and how long it waits."""

    sweep_s: float = 2.0
    backoff: Backoff = _BACKOFF
    leave_s: float = 5.0
    """at shutdown, orders that are under way get so long to end"""


class Dispatch:
    """The executors of one service, or of one runner."""

    def __init__(
        self,
        orders: OrderSource,
        executors: Sequence[Configured],
        name: str,
        *,
        events: Events | None = None,
        ended: Ended | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._orders, self._executors, self._name = orders, tuple(executors), name
        self._events, self._ended, self._pace = events, ended, pace or Pace()
        self._awake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._busy: dict[tuple[str, bool], int] = {}
        """(executor, whether they are tests, which take long and hold up nothing else) -> orders under way"""
        self._left: list[tuple[Taken, Configured, bool]] = []

    @property
    def executors(self) -> tuple[Configured, ...]:
        return self._executors

    # --- coming and going

    async def recover(self) -> None:
        """Continue the orders that were under way when the process ended. Must run before orders may expire."""
        if not self._executors:
            return
        self._left.clear()
        known = {self._who(one): one for one in self._executors}
        for found in await self._orders.in_hand(f"{self._name}."):
            by = next((one for who, one in known.items() if found.claimed_by.endswith(who)), None)
            if by is None:
                log.warning("action %d: its executor %s is no longer configured", found.id, found.claimed_by)
                continue
            with contextlib.suppress(*_GONE):
                self._left.append((await self._orders.resume(found.id, self._who(by)), by, found.begun))

    def start(self) -> None:
        """Begin on the event loop."""
        if not self._executors:
            return
        self._take_up_what_was_left()
        self._loops = [asyncio.create_task(self._run()), asyncio.create_task(self._check())]
        if self._events is not None:
            self._loops.append(asyncio.create_task(self._listen(self._events)))

    async def once(self) -> None:
        """Carry out the orders that are there now, and return. Used instead of ``start``."""
        self._take_up_what_was_left()
        await self.round()
        while self._under_way:
            await asyncio.wait(self._under_way.values())
            await asyncio.sleep(0)

    def _take_up_what_was_left(self) -> None:
        for taken, by, begun in self._left:
            self._take_up(taken, by, self._go_on(taken, by, begun))
        self._left.clear()

    async def stop(self) -> None:
        """Take no more orders. An order that does not end soon is continued at the next start."""
        for task in self._loops:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=self._pace.leave_s)
        for task in list(self._under_way.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _check(self) -> None:
        for one in self._executors:
            for problem in await one.executor.check():
                log.warning("executor %s cannot act: %s", one.name, problem)

    async def _listen(self, events: Events) -> None:
        async for event in events.listen():
            if event is not None and event.kind.startswith("action."):
                self._awake.set()

    async def _run(self) -> None:
        said = ""
        while True:
            try:
                await self.round()
                said = ""
            except DiagnoseError as away:
                if str(away) != said:  # once, not at each look
                    log.warning("the orders cannot be read: %s", away)
                said = str(away)
            except Exception:
                log.exception("dispatch")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.sweep_s * random.uniform(0.8, 1.0)):  # noqa: S311
                    await self._awake.wait()
            self._awake.clear()

    async def round(self) -> None:
        """Claim the orders that these executors are for."""
        for order in await self._orders.orders():
            by = choose(self._executors, Order.of(order))
            if by is None or order["id"] in self._under_way:
                continue
            if self._busy.get((by.name, order["kind"] == CHECK), 0) >= by.at_once:
                continue
            with contextlib.suppress(*_GONE):  # another dispatcher was quicker
                taken = await self._orders.claim(order["id"], self._who(by))
                self._take_up(taken, by, self._carry_out(taken, by))

    def _who(self, by: Configured) -> str:
        return f"{self._name}.{by.name}"

    def _take_up(self, taken: Taken, by: Configured, work: Any) -> None:
        action_id, place = taken.id, (by.name, taken.order["kind"] == CHECK)
        self._busy[place] = self._busy.get(place, 0) + 1
        task = self._under_way[action_id] = asyncio.create_task(work)

        def over(done: asyncio.Task[None]) -> None:
            del self._under_way[action_id]
            self._busy[place] -= 1
            self._awake.set()  # there is room for another
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("action %d", action_id, exc_info=error)

        task.add_done_callback(over)

    # --- one order

    async def _carry_out(self, taken: Taken, by: Configured, first: bool = True) -> None:
        """``first``: nobody has begun it, so the job cannot run on its nodes yet, and they may be tested."""
        async with self._kept(taken, by) as lost:
            if not await self._told(lambda: self._orders.begin(taken.id, self._who(by), taken.fence), taken, "begun"):
                return
            began, order = time.time(), Order.of(taken.order)
            if order.kind == CHECK:
                await self._report(taken, by, await self._test(order, by, taken, lost), began)
                return
            tested = await self._tested(order, by, taken) if order.check and first else None
            async with asyncio.TaskGroup() as beside:
                if tested is None:
                    outcome = await self._outcome(order, by, lost)
                else:
                    if tested.verdict is not None:  # the order does not wait for this: it has the result
                        beside.create_task(self._tell_of(tested.verdict, by, taken))
                    outcome = await self._after(tested, order, by, lost)
            await self._report(taken, by, outcome, began)

    async def _after(self, tested: Tested, order: Order, by: Configured, lost: asyncio.Event) -> Outcome:
        """The outcome of an order whose nodes were tested. It goes on without the faulty ones."""
        if lost.is_set():
            return Outcome("failed", f"not begun, its lease lapsed meanwhile: {tested.said}")
        avoid = dict.fromkeys((*order.avoid, *(node for node in tested.faulty if node not in order.nodes)))
        outcome = await self._outcome(replace(order, avoid=tuple(avoid), check=()), by, lost)
        return replace(outcome, what=f"{outcome.what}; {tested.said}")

    async def _test(self, order: Order, by: Configured, taken: Taken, lost: asyncio.Event) -> Outcome:
        """The outcome of an order to test nodes. They may be in use at first: it is tried as long as patience allows."""
        if by.check is None:
            return Outcome("failed", f"{by.name} has no check any more")
        if by.dry_run:
            return Outcome("failed", f"would have tested {', '.join(order.nodes)}")
        until, failures = time.monotonic() + by.patience_s, 0
        while True:
            tested = await by.check.test(order.nodes)
            log.info("action %d: %s", taken.id, tested.said)
            if tested.verdict is not None:
                await self._tell_of(tested.verdict, by, taken)
                return Outcome("succeeded", tested.said)
            failures += 1
            wait = self._pace.backoff.after(failures)
            if tested.for_good or lost.is_set() or time.monotonic() + wait > until:
                return Outcome("failed", tested.said)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await lost.wait()
            if lost.is_set():
                return Outcome("failed", tested.said)

    async def _tested(self, order: Order, by: Configured, taken: Taken) -> Tested | None:
        """Test the nodes first, if this executor knows how."""
        if by.check is None:
            return None
        if by.dry_run:
            return Tested(f"would have tested {', '.join(order.check)}")
        tested = await by.check.test(order.check)
        log.info("action %d: %s", taken.id, tested.said)
        return tested

    async def _tell_of(self, verdict: dict[str, Any], by: Configured, taken: Taken) -> None:
        """Tell the service of a check, for as long as it takes."""
        await self._told(lambda: self._checked(verdict, by, taken), taken, "told of the check")

    async def _checked(self, verdict: Any, by: Configured, taken: Taken) -> None:
        """Report the check to the service, unless the service has no use for it."""
        try:
            await self._orders.checked(verdict, self._who(by))
        except (Unavailable, Busy):
            raise
        except DiagnoseError as refused:
            log.warning("action %d: the node check was not taken: %s", taken.id, refused)

    async def _go_on(self, taken: Taken, by: Configured, begun: bool) -> None:
        """Continue an order that was interrupted."""
        if begun and not by.repeatable and taken.order["kind"] != CHECK:  # a test may be made twice
            what = f"{by.name} was cut off at it, and cannot tell what was done"
            await self._report(taken, by, Outcome("unknown", what), time.time())
            return
        log.info("action %d: %s goes on with it", taken.id, by.name)
        await self._carry_out(taken, by, first=not begun)

    async def _outcome(self, order: Order, by: Configured, lost: asyncio.Event) -> Outcome:
        """The outcome, after as many tries as patience allows."""
        until, failures = time.monotonic() + by.patience_s, 0
        out: dict[str, None] = {}
        done: Outcome | None = None
        while True:
            try:
                outcome = await by.executor.carry_out(order, dry_run=by.dry_run)
            except Exception as error:  # an executor promises not to raise: what it did before is unknown
                log.exception("executor %s", by.name)
                outcome = Outcome("unknown", f"{by.name} failed at it: {type(error).__name__}", True)
            if outcome.isolated is not None or outcome.state != "succeeded":
                out |= dict.fromkeys(outcome.isolated or ())  # a later try may not get far enough to see it
                outcome = replace(outcome, isolated=tuple(out))
            if outcome.state == "succeeded":  # what is left beside it cannot undo that
                done = outcome
            again = outcome.may_retry and (outcome.state != "unknown" or by.repeatable)
            failures += 1
            wait = max(self._pace.backoff.after(failures), _asked(outcome))
            if not again or by.dry_run or lost.is_set() or time.monotonic() + wait > until:
                return done or outcome
            log.info("order %s: %s; again in %.1f s", order.key, outcome.what, wait)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await lost.wait()
            if lost.is_set():
                return done or outcome

    async def _report(self, taken: Taken, by: Configured, outcome: Outcome, began: float) -> None:
        said, result, isolated = outcome.what, str(outcome.state), outcome.isolated
        if by.dry_run:
            # Never a success: an order that was not done takes no node out of service.
            said, result, isolated = f"dry run: {said}", "dry_run", ()
        elif outcome.state == "unknown":
            said = f"nobody knows whether it was done, look before you do it by hand: {said}"
        said = "".join(c if c.isprintable() else " " for c in said)[:2000]
        log.info("action %d: %s: %s: %s", taken.id, by.name, result, said)
        await self._told(
            lambda: self._orders.finish(taken.id, self._who(by), taken.fence, result == "succeeded", said, isolated),
            taken,
            "finished",
        )
        if self._ended is not None:
            self._ended(by.name, result, Order.of(taken.order), began)

    async def _told(self, tell: Callable[[], Any], taken: Taken, what: str) -> bool:
        """Repeat until the result was accepted. False: it is refused."""
        failures = 0
        while True:
            try:
                await tell()
                return True
            except _GONE as refused:
                log.warning("action %d cannot be %s: %s", taken.id, what, refused)
                return False
            except DiagnoseError as away:
                log.info("action %d: %s", taken.id, away)
            failures += 1
            await asyncio.sleep(self._pace.backoff.after(failures))

    @contextlib.asynccontextmanager
    async def _kept(self, taken: Taken, by: Configured) -> AsyncIterator[asyncio.Event]:
        """Renew the lease within this context. The event is set if the lease is lost: then nothing new may begin."""
        lost = asyncio.Event()
        task = asyncio.create_task(self._keep(taken, by, lost))
        try:
            yield lost
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep(self, taken: Taken, by: Configured, lost: asyncio.Event) -> None:
        every_s = taken.lease_s / 3
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._orders.renew(taken.id, self._who(by), taken.fence)
            except _GONE as refused:
                log.warning("action %d now belongs to another executor: %s", taken.id, refused)
                lost.set()
                return
            except DiagnoseError as away:
                log.info("action %d: its lease was not renewed: %s", taken.id, away)


def _asked(outcome: Outcome) -> float:
    """How long the other side wants us to wait, within limits."""
    wait = outcome.details.get("retry_after_s")
    return min(float(wait), 300.0) if isinstance(wait, int | float) else 0.0


def name_in(folder: Path, prefix: str) -> str:
    """A name that stays the same over restarts. Only one process can hold the folder, so only one has the name."""
    path = folder / "executor-name"
    try:
        found = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        found = ""
    if not (found.startswith(f"{prefix}-") and found.isprintable() and len(found) < 60):
        found = f"{prefix}-{token_hex(6)}"
        with open(path, "w", encoding="ascii") as file:
            file.write(found + "\n")
            file.flush()
            os.fsync(file.fileno())  # who forgets its name over a power cut is taken for another
        sync_folder(folder)
    return found
