"""Batches of one sender on their way to disk, in order, several at a time."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace

from service.auth import Tokens, Who
from service.errors import Busy, Refused, Unavailable
from service.intake.batch import Accepted, Batch
from service.intake.ingest import Ingest
from service.names import check_job

_IN_FLIGHT = 16
_WAIT_S = 5.0


class Storing:
    """Add batches, then settle. One that can never be stored does not hold up the others; one that can be later ends all."""

    def __init__(self, ingest: Ingest, tokens: Tokens, who: Who) -> None:
        self._ingest, self._tokens, self._who = ingest, tokens, who
        self._begun: deque[tuple[Batch, Awaitable[Accepted]]] = deque()
        self.refused: list[tuple[Batch, Refused]] = []
        """what can never be stored, and why"""

    @property
    def rejected(self) -> int:
        """Lines of what can never be stored."""
        return sum(batch.data.count(b"\n") or 1 for batch, _ in self.refused)

    @property
    def why(self) -> str | None:
        return str(self.refused[0][1]) if self.refused else None

    async def add(self, batches: Iterable[Batch]) -> None:
        if isinstance(batches, Sequence) and len(batches) > 1 and not self._tokens.limited(self._who):
            await self._open_together(batches)
        for batch in batches:
            self._tokens.spend(self._who, len(batch.data))
            try:
                ours = self._ours(batch)
                self._begun.append((batch, await self._ingest.begin(ours, self._who.grant, wait_s=_WAIT_S)))
            except Refused as refused:
                self._reject(batch, refused)
            while len(self._begun) > _IN_FLIGHT:
                await self._settle_first()

    def _ours(self, batch: Batch) -> Batch:
        """``batch`` with the name by which the service knows its job."""
        job = self._who.named(check_job(batch.job))
        return batch if job == batch.job else replace(batch, job=job)

    async def _open_together(self, batches: Sequence[Batch]) -> None:
        """Jobs that are new share a transaction. What is wrong with a batch is found out again when its turn comes."""
        ours = []
        for batch in batches:
            with contextlib.suppress(Refused):
                ours.append(self._ours(batch))
        await self._ingest.open_together(ours, self._who.grant)

    async def settle(self) -> None:
        """Wait until everything is on disk or was refused."""
        later: Refused | None = None
        while self._begun:
            try:
                await self._settle_first()
            except Refused as refused:
                later = refused
        if later is not None:
            raise later

    async def _settle_first(self) -> None:
        batch, one = self._begun.popleft()
        try:
            await one
        except Refused as refused:
            self._reject(batch, refused)

    def _reject(self, batch: Batch, refused: Refused) -> None:
        if isinstance(refused, Busy | Unavailable):
            raise refused  # all of it is sent again, and its key shows what was stored
        self.refused.append((batch, refused))
