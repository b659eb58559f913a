"""Puts the parts of a running service together; ``app`` adds HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from diagnose.decision.policy_file import in_force
from diagnose.errors import said_first
from diagnose.knowledge.rules import RuleSet
from service.acting.actions import Actions
from service.acting.authority import Authority
from service.acting.dispatch import Dispatch, name_in
from service.acting.executors import configuration
from service.acting.executors.executor import Order, Scheduler
from service.auth import Tokens, Who, check_exposure
from service.events import Events
from service.intake.ingest import Ingest
from service.intake.protocols import identity
from service.journal import Journal
from service.learning import vllm
from service.learning.host import Learning, endpoint
from service.live.jobs import Jobs
from service.net.guarded import Outgoing, networks
from service.notify.courier import Courier
from service.probes import Probes
from service.projects import parted
from service.quotas import Quotas
from service.raw.archive import Archive, sizes
from service.retention import Retention
from service.scrubber import Scrubber
from service.settings import Settings
from service.sign_in.entrance import Entrance
from service.store import Store
from service.store.attempts import last_lsn
from service.store.lease import BEAT_S, Claim, LeaseLost
from service.store.training.rates import Rates
from service.telemetry import Telemetry
from service.traces import Traces

log = logging.getLogger("diagnose.service")
T = TypeVar("T")
_REFRESH_S = 5.0


class Service:
    """One service with one data folder and one database."""

    def __init__(self, settings: Settings, rules: RuleSet | None = None) -> None:
        self.settings = settings
        self.vllm = vllm.beside(settings)
        private = networks(settings.webhooks_to)
        outgoing = Outgoing(private)
        executors = configuration.load(settings.executors, private) if settings.executors else ()
        self.identities = identity.load(settings.identities)
        self.sign_in = Entrance.of(settings)
        policy, self.asks = in_force(
            settings.policy,
            confirmed=settings.authority == "confirmed",
            schedulers=any(isinstance(one.executor, Scheduler) for one in executors),
        )
        self.telemetry = Telemetry(Traces(settings.traces))
        self.journal = Journal(
            settings.data / "journal",
            segment=settings.segment,
            limit=settings.journal_limit,
            archives=settings.raw_logs is not None,
        )
        try:
            self.archive = (
                Archive(
                    settings.raw_logs,
                    self.journal,
                    self.telemetry,
                    redact=settings.redact,
                    wait_s=settings.raw_wait_s,
                    job_limit=settings.raw_job_limit,
                    leave_free=settings.raw_leave_free,
                    journal_limit=settings.journal_limit,
                )
                if settings.raw_logs is not None
                else None
            )
            self.store = Store(settings.database) if settings.database else Store.in_folder(settings.data)
            self._take()
            check_exposure(self.store, settings)
        except BaseException:
            self.journal.close()
            raise
        self.events = Events()
        self.jobs = Jobs(self.store, self.journal, self.events, self.telemetry, settings, rules)
        self.quotas = Quotas(self.store, self.telemetry, raw_bytes=self._raw_bytes if self.archive is not None else None)
        self.ingest = Ingest(self.jobs, self.journal, self.telemetry, settings, self.quotas)
        self.learning = Learning(
            self.store,
            self.jobs.matchers,
            self.events,
            self.telemetry,
            settings,
            lambda: endpoint(settings, self.vllm),
            quotas=self.quotas,
        )
        self.jobs.learning = self.learning
        self.tokens = Tokens(self.store, settings, others=self.sign_in.others)
        self.actions = Actions(
            self.store, self.events, policy, authority=Authority(executors) if self.asks else None, shown_at=settings.public_url
        )
        self.dispatch = Dispatch(
            self.actions,
            executors,
            name_in(settings.data, "service"),
            events=self.events,
            ended=self._ordered,
        )
        self.retention = Retention(self.store, self.jobs, self.journal, self.archive, self.events, self.telemetry, settings)
        self.courier = Courier(self.store, self.events, self.telemetry, outgoing, settings.webhook_retry_s)
        self.probes = Probes(self.journal.folder, self.store, self.jobs, self.telemetry)
        self.scrubber = Scrubber(self.journal, self.store, self.telemetry)
        self.failure_rates = Rates()
        self.started_at = time.time()
        self.ready = False
        self.runner_at: float | None = None
        """when a runner last asked for orders"""
        self.lost: LeaseLost | None = None
        """set if another service has the database: then this one ends"""
        self.end: Callable[[], None] = lambda: None
        """makes the service end: set by the server"""
        self.phase: Callable[[str], None] = lambda phase: None
        """is told what the service is doing while it gets ready: set by the server"""
        self._tasks: list[asyncio.Task[None]] = []

    def _take(self) -> None:
        """Take the database for this service alone."""
        name = name_in(self.settings.data, "service")
        before = self.store.take(Claim.of(self.settings.data, name))
        if before is not None:
            log.warning("the database was used by %s: what only that one's journal has is not read here", before)

    def _ordered(self, name: str, result: str, order: Order, began: float) -> None:
        """An executor is done with an order, in one way or another."""
        self.telemetry.orders.labels(name, result).inc()
        whose = (order.job, order.attempt or 1) if order.job is not None else None
        failed = None if result in ("succeeded", "dry_run") else result
        self.telemetry.traces.add(
            f"order {order.kind}", began, time.time(), kind="client", attempt=whose, failed=failed, executor=name, result=result
        )

    def _raw_bytes(self) -> dict[str, int]:
        """project -> bytes of its raw logs."""
        found: Counter[str] = Counter()
        if self.archive is not None:
            for job, size in sizes(self.archive.folder):
                found[parted(job)[0]] += size
        return found

    async def read(self, who: Who, work: Callable[[Connection], T]) -> T:
        """``work`` on what ``who`` may see of the database."""
        return await self.store.aread(work, who.projects)

    async def start(self) -> None:
        """Begin on the event loop, before the first request."""
        self.events.start()
        await self.tokens.refresh()
        await self.quotas.refresh()
        if self.asks and not self.tokens.any_speaks:
            log.warning(
                "no token speaks for anybody's jobs, so whatever the policy would do waits for a person. "
                "Bind those that send logs: diagnose tokens create NAME --role ingest --user, --namespace or --job PATTERN "
                "(docs/service.md, on whose word)"
            )
        await asyncio.to_thread(self.retention.recover)
        self.phase("compiling the rules")
        await asyncio.to_thread(self.jobs.prepare)
        self.phase("reading the journal again")
        await asyncio.to_thread(self.jobs.recover)
        known = await self.store.aread(last_lsn)
        self.journal.start(after=known)
        if self.archive is not None:
            self.archive.start()
        self.jobs.start()
        await self.dispatch.recover()  # before any time passes for orders that were under way
        self.actions.start()
        self.dispatch.start()
        await self.learning.start()
        self.courier.start()
        self.retention.start()
        self._tasks.append(asyncio.create_task(self._refresh_for_ever()))
        self._tasks.append(asyncio.create_task(self._beat_for_ever()))
        self._tasks.append(asyncio.create_task(self.probes.watch()))
        self._tasks.append(asyncio.create_task(self.scrubber.run()))
        self._tasks.append(asyncio.create_task(self.sign_in.run()))
        self.ready = True

    async def stop(self) -> None:
        """Answer open requests, store what was read, and leave the rest to the journal."""
        self.ready = False
        self.ingest.close()
        await self.dispatch.stop()
        await self.actions.stop()
        await self.courier.stop()
        await self.retention.stop()
        self.events.close()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.learning.close()
        await self.jobs.close()
        if self.archive is not None:
            await asyncio.to_thread(self.archive.close)
        await asyncio.to_thread(self.journal.close)
        with contextlib.suppress(SQLAlchemyError, LeaseLost):
            await asyncio.to_thread(self.store.give_back)
        self.store.close()
        await asyncio.to_thread(self.telemetry.traces.close)

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await asyncio.to_thread(self.store.beat)
            except LeaseLost as error:
                log.critical("%s; this service ends, and its journal stays", error)
                self.lost, self.ready = error, False
                self.ingest.close()
                self.end()
                return
            except SQLAlchemyError as error:
                log.warning("the sign of life could not be written to the database: %s", said_first(error))

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            try:
                await self.tokens.refresh()
                await self.quotas.refresh()
            except Exception as error:
                log.warning("the tokens or quotas could not be read again: %s", error)
