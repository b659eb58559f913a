"""Sends signed webhooks. A delivery is repeated until it arrives or one day has passed.

Nothing waits for a delivery. The audit trail says what is to be sent, and one task per receiver sends it. A receiver that does
not answer is left alone for longer each time, and the others do not notice. A delivery that was under way when the service was
killed is sent again with the same id: at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from service.errors import Refused
from service.events import Events
from service.net import signing
from service.net.client import Answer, Unreachable
from service.net.guarded import Outgoing
from service.notify import messages
from service.store import Store
from service.store import webhooks as stored
from service.store.webhooks import Delivery, Notice, Webhook
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.webhooks")

_SWEEP_S = 2.0
_A_TURN = 20
_LONGEST_S = 3_600.0
_GIVE_UP_S = 86_400.0
_KEPT_S = 7 * 86_400.0
_AGENT = "diagnose-webhooks/1"
_WAKES = ("job.diagnosed", "job.ended", "job.alarm", "failure.", "action.")


def settled_secret(secret: str | None) -> str:
    """The given secret, checked; or a new one."""
    if secret is None:
        return signing.new_secret()
    signing.key_of(secret)
    return secret


async def send(outgoing: Outgoing, webhook: Webhook, notice: Notice, now: float) -> Answer:
    """One try of one delivery."""
    kind, body = messages.FORMATS[webhook.format](notice)
    headers = {"content-type": kind, "user-agent": _AGENT}
    return await outgoing.post(webhook.url, headers | signing.headers(webhook.secret, f"msg_{notice.id}", now, body), body)


def notice_of_test(webhook: int, now: float) -> Notice:
    """The message of ``webhooks test``."""
    data = {"job": "a-test", "summary": "If you read this, the webhook works."}
    return Notice(f"test.{webhook}.{int(now * 1000)}", "test", now, f"webhook/{webhook}", data)


class Courier:
    """Delivers, on the event loop."""

    def __init__(
        self, store: Store, events: Events, telemetry: Telemetry, outgoing: Outgoing, retry_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.outgoing = outgoing
        self._store, self._events, self._telemetry, self._clock = store, events, telemetry, clock
        self._backoff = Backoff(retry_s, _LONGEST_S, factor=3.0, spread=0.2)
        self._awake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._rests: dict[int, tuple[int, float]] = {}
        """webhook -> (failures in a row, until when it rests)"""
        self._swept = 0.0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """Stop. What is not delivered stays in the database."""
        for task in (*self._tasks, *self._turns.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.outgoing.close()

    async def _listen(self) -> None:
        async for event in self._events.listen():
            if event is not None and event.kind.startswith(_WAKES):
                self._awake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except Refused as away:
                log.debug("%s", away)
            except Exception:
                log.exception("webhooks")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_S):
                    await self._awake.wait()
            self._awake.clear()

    async def round(self) -> None:
        """Queue what is new, and give each receiver with waiting deliveries its turn."""
        now = self._clock()
        if await self._store.aread(stored.news):
            await self._store.awrite(lambda connection: stored.queue(connection, now))
        if now - self._swept > _LONGEST_S:
            self._swept = now
            await self._store.awrite(lambda connection: stored.forget(connection, now - _KEPT_S))
        for webhook in await self._store.aread(lambda connection: stored.waiting_for(connection, now)):
            if webhook not in self._turns and self._rests.get(webhook, (0, 0.0))[1] <= now:
                task = self._turns[webhook] = asyncio.create_task(self._turn(webhook))
                task.add_done_callback(lambda done, which=webhook: self._over(which, done))  # type: ignore[misc]

    def _over(self, webhook: int, done: asyncio.Task[None]) -> None:
        del self._turns[webhook]
        if done.cancelled() or (error := done.exception()) is None:
            return
        # The delivery may have arrived without being noted. A receiver must not get it again and again for that.
        self._rest(webhook, self._clock())
        if not isinstance(error, Refused):
            log.error("webhook %d: %s", webhook, error)

    async def _turn(self, webhook_id: int) -> None:
        now = self._clock()
        webhook = await self._store.aread(lambda connection: stored.find(connection, webhook_id))
        waiting = await self._store.aread(lambda connection: stored.due(connection, webhook_id, now, _A_TURN))
        if webhook is None or not webhook.active:
            return
        for delivery in waiting:
            if not await self._deliver(webhook, delivery):
                return
        if len(waiting) == _A_TURN:
            self._awake.set()

    async def _deliver(self, webhook: Webhook, delivery: Delivery) -> bool:
        """Deliver it. Returns whether to go on with the next one."""
        now = self._clock()
        wait: float | None = None
        try:
            answer = await send(self.outgoing, webhook, delivery.notice, now)
        except (Unreachable, DiagnoseError) as error:
            status, arrived, rests = str(error), False, True
        else:
            status, arrived = f"HTTP {answer.status}", 200 <= answer.status < 300
            rests, wait = answer.status == 429 or answer.status >= 500, answer.retry_after_s
            if answer.status == 410:
                await self._store.awrite(lambda connection: stored.switch_off(connection, webhook.id, "HTTP 410: gone", now))
                log.warning("webhook %d answered HTTP 410 (gone) and was switched off", webhook.id)
                return False
        self._telemetry.deliveries.labels("delivered" if arrived else "failed").inc()
        if arrived:
            await self._store.awrite(lambda connection: stored.delivered(connection, delivery, status))
            self._rests.pop(webhook.id, None)
            return True
        if now - delivery.created > _GIVE_UP_S:
            log.error("webhook %d: notice %s is given up: %s", webhook.id, delivery.notice.id, status)
            await self._store.awrite(lambda connection: stored.give_up(connection, delivery, status, now))
        else:
            after = now + max(self._backoff.after(delivery.tries + 1), min(wait or 0.0, _LONGEST_S))
            await self._store.awrite(lambda connection: stored.put_off(connection, delivery, status, after))
        if rests:
            self._rest(webhook.id, now, wait or 0.0)
            log.info("webhook %d does not take notices: %s", webhook.id, status)
        return not rests

    def _rest(self, webhook: int, now: float, at_least: float = 0.0) -> None:
        failures = self._rests.get(webhook, (0, 0.0))[0] + 1
        self._rests[webhook] = failures, now + max(self._backoff.after(failures), min(at_least, _LONGEST_S))
