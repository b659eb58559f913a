"""What each project may use of the service, so that no project takes what others need.

Each bound answers with 429: what was not taken may be sent again. ``store.quotas`` says what the bounds are; they are read
again every few seconds. Nothing is asked of the database for a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping

from service.clock import SYSTEM, Clock
from service.errors import Busy
from service.projects import parted
from service.store import Store
from service.store import quotas as stored
from service.store.quotas import NONE, OTHERS, Quota
from service.telemetry import Telemetry

_BURST_S = 2.0
"""so many seconds of a rate may be used at once"""
_MEASURE_S = 60.0
_HOUR_S = 3600.0
_ROOM_AGAIN_S = 60.0


class Buckets:
    """How much of a rate each name has left. One batch may go into debt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, name: str, size: int, rate: int) -> float | None:
        """Take ``size``. If nothing is left, nothing is taken: how many seconds to wait."""
        now = self._clock.steady()
        left, at = self._left.get(name, (rate * _BURST_S, now))
        left = min(rate * _BURST_S, left + (now - at) * rate)
        if left <= 0:
            return max(1.0, -left / rate)
        self._left[name] = (left - size, now)
        return None


class Quotas:
    """The quotas of all projects, and what is used of them. Owned by the event loop."""

    def __init__(
        self,
        store: Store,
        telemetry: Telemetry,
        clock: Clock = SYSTEM,
        raw_bytes: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """``raw_bytes`` measures the raw logs: project -> bytes. It takes long, and runs on a thread."""
        self._store, self._telemetry, self._clock, self._raw_bytes = store, telemetry, clock, raw_bytes
        self._of: dict[str, Quota] = {}
        self._rates = Buckets(clock)
        self._opening: Counter[str] = Counter()
        """jobs that are being opened"""
        self._stored: dict[str, int] = {}
        self._measured: float | None = None
        self._spent: dict[str, deque[tuple[float, int]]] = {}
        """project -> (when, tokens of the model) of the last hour"""

    def of(self, project: str) -> Quota:
        return self._of.get(project) or self._of.get(OTHERS, NONE)

    @property
    def any(self) -> bool:
        return bool(self._of)

    def named(self) -> set[str]:
        """The projects that have quotas of their own, or have stored something."""
        return {*self._of, *self._stored} - {OTHERS}

    async def refresh(self) -> None:
        """Read what an administrator has said, and now and then measure what is stored."""
        self._of = await self._store.aread(stored.quotas)
        now = self._clock.steady()
        if self._measured is None or now - self._measured >= _MEASURE_S:
            self._measured = now
            await self.measure()

    async def measure(self) -> None:
        """Measure what each project has stored."""
        found = Counter(await self._store.aread(stored.stored_bytes))
        if self._raw_bytes is not None and any(quota.storage is not None for quota in self._of.values()):
            found.update(await asyncio.to_thread(self._raw_bytes))
        for project in self._stored.keys() - found.keys():
            self._telemetry.project_stored_bytes.remove(project)
        self._stored = dict(found)
        for project, size in found.items():
            self._telemetry.project_stored_bytes.labels(project).set(size)

    def stored(self, project: str) -> int:
        return self._stored.get(project, 0)

    # --- what comes in -------------------------------------------------------------------------------------------------------

    def spend(self, job: str, size: int) -> None:
        """Take ``size`` log bytes from the quota of a job's project. Raises Busy if it is used up."""
        if not self._of:
            return
        project = parted(job)[0]
        quota = self.of(project)
        if quota.storage is not None and self.stored(project) >= quota.storage:
            self._refuse(
                project,
                "storage",
                f"the project has stored its {quota.storage:,} bytes",
                "delete jobs, or ask for a larger quota",
                _ROOM_AGAIN_S,
            )
        if quota.rate is not None and (wait_s := self._rates.spend(project, size, quota.rate)) is not None:
            what = f"the project has used up its {quota.rate:,} bytes per second"
            self._refuse(project, "rate", what, "send more slowly, or ask for a larger quota", wait_s)

    @contextlib.contextmanager
    def opening(self, job: str, running: Callable[[str], int]) -> Iterator[None]:
        """Within this context a job is opened that is not in memory. ``running``: how many attempts of a project run."""
        project = parted(job)[0]
        most = self.of(project).jobs if self._of else None
        if most is not None:
            others = sum(1 for other in self._opening if other != job and parted(other)[0] == project)
            if running(project) + others >= most:
                what = f"the project has {most:,} jobs that run, and may have no more at a time"
                self._refuse(project, "jobs", what, "say when jobs end (POST .../end), or ask for a larger quota", 30.0)
        self._opening[job] += 1
        try:
            yield
        finally:
            self._opening[job] -= 1
            if not self._opening[job]:
                del self._opening[job]

    def check_source(self, job: str, sources: Callable[[str], int]) -> None:
        """Raise Busy if the project may have no further source. ``sources``: how many its running attempts have."""
        if not self._of:
            return
        project = parted(job)[0]
        most = self.of(project).sources
        if most is not None and sources(project) >= most:
            what = f"the jobs of the project have {most:,} sources, and may have no more at a time"
            self._refuse(project, "sources", what, "send several ranks as one source, or ask for a larger quota", 30.0)

    # --- the model -----------------------------------------------------------------------------------------------------------

    def spent(self, job: str, tokens: int) -> None:
        """A question about a job has cost so many tokens of the model."""
        if tokens > 0:
            project = parted(job)[0]
            self._spent.setdefault(project, deque()).append((self._clock.steady(), tokens))
            self._telemetry.project_model_tokens.labels(project).inc(tokens)

    def tokens(self, project: str) -> int:
        """What the questions of the last hour about a project's jobs have cost."""
        spent = self._spent.get(project, deque())
        while spent and spent[0][0] <= self._clock.steady() - _HOUR_S:
            spent.popleft()
        return sum(tokens for _, tokens in spent)

    def why_not_ask(self, job: str) -> str | None:
        """Why the model is not asked about a job; None: it may be asked."""
        project = parted(job)[0]
        most = self.of(project).tokens
        if most is None or self.tokens(project) < most:
            return None
        self._telemetry.project_refused.labels(project, "tokens").inc()
        return f"the project has used up its {most:,} tokens of the model per hour"

    def _refuse(self, project: str, bound: str, what: str, remedy: str, wait_s: float) -> None:
        self._telemetry.project_refused.labels(project, bound).inc()
        raise Busy(what, where=project, remedy=remedy, retry_after_s=wait_s)
