"""A clock whose hands a test moves, few rules that compile at once, and the live jobs of a service without its HTTP face."""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from diagnose.knowledge.rules import Rule, RuleSet
from service.clock import Clock
from service.events import Events
from service.intake.batch import Batch
from service.intake.ingest import Ingest
from service.journal import Journal
from service.live.jobs import Jobs
from service.quotas import Quotas
from service.settings import Settings
from service.store import Store
from service.store import tables as t
from service.telemetry import Telemetry

RULES = RuleSet.of(
    [
        Rule("boom", "failures", r"RuntimeError: boom", reason="runtime_error", layer="framework", title="It went boom"),
        Rule("stop", "failures", r"CANCELLED AT", reason="preempted", layer="scheduler", title="It was cancelled"),
        Rule("fine", "failures", r"Training completed", reason="healthy", severity="warning", title="All went well"),
        Rule("mind", "failures", r"mind the gap", reason="runtime_error", severity="warning", title="A warning"),
        Rule(
            "step",
            "filters",
            r"^iteration \d+ loss",
            kind="metric",
            metrics=(("step", r"iteration (\d+)"), ("loss", r"loss ([\w.]+)")),
        ),
    ]
)


class Hands:
    """Of a clock: time passes when a test says so."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0
        """how far somebody has set the time of day forward"""
        self.clock = Clock(lambda: 1_800_000_000.0 + self.passed + self.set_by, lambda: 5_000.0 + self.passed)


def until(true: Callable[[], Any], within_s: float = 20.0) -> Any:
    """For what another thread does at once: the limit only ends a test that has failed."""
    deadline = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.in_folder(Path(folder))
        store.migrate()
        store.close()
        return (Path(folder) / "diagnose.db").read_bytes()


def store_in(folder: Path) -> Store:
    """A SQLite database with all tables; those that are new are made once per process, for that takes long."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "diagnose.db").exists():
        (folder / "diagnose.db").write_bytes(_migrated())
    return Store.in_folder(folder)


class Live:
    """A real store, journal, scanner and flusher; with a clock of its own if need be. To be entered on an event loop."""

    def __init__(self, folder: Path, hands: Hands | None = None, **settings: Any) -> None:
        self.settings = Settings(data=folder, scanners=1, flush_s=0.01).model_copy(update=settings)
        clock = hands.clock if hands is not None else Clock()
        self.store = store_in(folder)
        self.journal = Journal(folder / "journal")
        self.events, self.telemetry = Events(), Telemetry()
        self.jobs = Jobs(self.store, self.journal, self.events, self.telemetry, self.settings, RULES, clock)
        self.quotas = Quotas(self.store, self.telemetry, clock)
        self.ingest = Ingest(self.jobs, self.journal, self.telemetry, self.settings, self.quotas, clock)

    async def __aenter__(self) -> Live:
        self.events.start()
        self.again = await asyncio.to_thread(self.jobs.recover)
        self.journal.start()
        self.jobs.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ingest.close()
        await self.jobs.close()
        await asyncio.to_thread(self.journal.close)
        self.store.close()

    async def send(self, data: bytes, job: str = "job", source: str = "s", **more: Any) -> Any:
        return await self.ingest.accept(Batch(job=job, source=source, data=data, **more))

    async def attempts(self, job: str = "job") -> list[Any]:
        """The rows of a job's attempts, beside its own."""
        j, a = t.jobs, t.attempts
        query = select(a, j.c.labels, j.c.reason).join(j, j.c.id == a.c.job_id).where(j.c.name == job).order_by(a.c.number)
        return await self.store.aread(lambda connection: [*connection.execute(query).all()])

    async def lines(self, job: str = "job") -> list[str]:
        """Its kept lines, in order."""
        k, a, j = t.kept_lines, t.attempts, t.jobs
        query = select(k.c.text).join(a, a.c.id == k.c.attempt_id).join(j, j.c.id == a.c.job_id).where(j.c.name == job)
        return await self.store.aread(lambda connection: [*connection.execute(query.order_by(k.c.ord)).scalars()])

    def heard(self) -> list[tuple[str, dict[str, Any]]]:
        """The events so far."""
        return [(event.kind, event.data) for event in self.events._recent]

    async def until(self, true: Callable[[], Any], within_s: float = 20.0) -> Any:
        """As ``until``, while the event loop goes on."""
        return await asyncio.to_thread(until, true, within_s)
