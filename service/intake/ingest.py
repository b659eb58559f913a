"""Batches -> the journal: each is checked, put in its place and made durable. Only then is it answered.

For each source the *received* offset only grows. A batch with an offset is stored exactly once: overlaps are skipped, and a gap
is refused with the offset that is wanted. A batch without an offset is stored at least once; it is stored only once within the
time in which its key (or its content) is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable

from service.clock import SYSTEM, Clock
from service.errors import Busy, Conflict, OffsetGap, Refused, TooLarge, Unavailable
from service.intake.batch import Accepted, Batch, allowed, check_may_write, checked
from service.journal import Entry, Journal
from service.live.attempt import LiveAttempt
from service.live.jobs import Jobs
from service.live.stream import HEAD, End, Item, Stream, key_of
from service.names import check_job
from service.projects import Grant
from service.quotas import Quotas
from service.segments import CONTROL, DATA, Definition
from service.settings import Settings
from service.telemetry import Telemetry

_ROOM_S = 0.02
_RETRY_S = 1.0
_REFUSED_S = 60.0


class Ingest:
    """Used by every protocol, on the event loop."""

    def __init__(
        self,
        jobs: Jobs,
        journal: Journal,
        telemetry: Telemetry,
        settings: Settings,
        quotas: Quotas,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock, self._quotas = clock, quotas
        self._jobs, self._journal, self._telemetry, self._settings = jobs, journal, telemetry, settings
        self._closing = False
        jobs.end_attempt = self._end_from_within

    def close(self) -> None:
        """Accept nothing more from now on."""
        self._closing = True

    async def accept(self, batch: Batch, grant: Grant | None = None, *, wait_s: float = 0.0) -> Accepted:
        """Make ``batch`` durable. ``wait_s``: how long to wait if queues are full, for a body that is still streaming."""
        return await (await self.begin(batch, grant, wait_s=wait_s))

    async def begin(self, batch: Batch, grant: Grant | None = None, *, wait_s: float = 0.0) -> Awaitable[Accepted]:
        """Put ``batch`` on its way to disk, in the order of calls. Await the result to know that it is there.

        ``grant``: on whose behalf it is sent; None: nobody's.
        """
        batch = allowed(checked(batch), grant)
        grant = grant.narrowed(batch.labels) if grant is not None else None
        if self._closing:
            raise Unavailable("the service is stopping", remedy="send it again in a moment", retry_after_s=2)
        deadline = self._clock.steady() + wait_s
        self._quotas.spend(batch.job, len(batch.data))
        attempt = await self.open(batch.job, batch.attempt, dict(batch.labels), grant)
        while (full := self._full(attempt, len(batch.data))) is not None:
            if self._clock.steady() >= deadline:
                self._telemetry.batches.labels("busy").inc()
                raise full
            await asyncio.sleep(_ROOM_S)
        if attempt.closed:  # it left the memory while we waited
            attempt = await self.open(batch.job, batch.attempt, None, grant)
        future, stream = self._enter(attempt, batch)
        return self._accepted(attempt, stream, future, self._clock.steady())

    async def open(self, job: str, number: int | None, labels: dict[str, str] | None, grant: Grant | None) -> LiveAttempt:
        """The attempt, for somebody who sends something of it. One that is not in memory needs room in its project's quota."""
        if not self._quotas.any or self._jobs.live(job, number) is not None:
            return await self._jobs.open(job, number, labels, grant)
        with self._quotas.opening(job, self._jobs.running):
            return await self._jobs.open(job, number, labels, grant)

    async def open_together(self, batches: Iterable[Batch], grant: Grant | None) -> None:
        """Open the attempts of several batches at once, so that those that are new share transactions.

        Nothing is raised: whoever begins with such a batch meets the error again. Where quotas count, each is opened in its
        turn, because a batch that a quota refuses opens nothing.
        """
        if self._closing or self._quotas.any:
            return
        wanted: dict[tuple[str, int | None], Batch] = {}
        for batch in batches:
            if self._jobs.live(batch.job, batch.attempt) is None and (batch.job, batch.attempt) not in wanted:
                with contextlib.suppress(Refused):
                    wanted[batch.job, batch.attempt] = allowed(checked(batch), grant)
        opening = (
            self._jobs.open(one.job, one.attempt, dict(one.labels), grant.narrowed(one.labels) if grant is not None else None)
            for one in wanted.values()
        )
        await asyncio.gather(*opening, return_exceptions=True)

    async def _accepted(
        self, attempt: LiveAttempt, stream: Stream, future: asyncio.Future[int] | None, began: float
    ) -> Accepted:
        if future is None:
            await self._settled(stream)
            self._telemetry.batches.labels("duplicate").inc()
            return Accepted(stream.durable, True, attempt.number)
        end = await future
        self._telemetry.append_s.observe(self._clock.steady() - began)
        self._telemetry.batches.labels("stored").inc()
        return Accepted(end, False, attempt.number)

    async def finish(self, job: str, number: int | None, end: End, grant: Grant | None = None) -> int:
        """Note that the attempt has ended, which is durable when this returns. Returns the number of the attempt."""
        check_may_write(check_job(job), grant)
        attempt = await self._jobs.open(job, number, grant=grant)
        await self._append_end(attempt, end)
        return attempt.number

    async def received(self, job: str, number: int | None) -> dict[str, Stream]:
        """The sources of a live attempt, with how far each was received."""
        attempt = self._jobs.live(job, number)
        return dict(attempt.received.by_name) if attempt is not None else {}

    # --- in place ------------------------------------------------------------------------------------------------------------

    def _full(self, attempt: LiveAttempt, size: int) -> Busy | None:
        if attempt.queued and attempt.queued + size > self._settings.queue_job:
            return Busy(
                "this job sends faster than it can be read", where=attempt.job, remedy="send again a little later",
                retry_after_s=_RETRY_S,
            )  # fmt: skip
        if self._jobs.queued and self._jobs.queued + size > self._settings.queue_all:
            return Busy(
                "the service holds as much unread log data as it may",
                remedy="send again a little later",
                retry_after_s=_RETRY_S,
            )
        return None

    def _enter(self, attempt: LiveAttempt, batch: Batch) -> tuple[asyncio.Future[int] | None, Stream]:
        """Put the batch on its way to disk; None if all of it is there already. This does not wait."""
        known = attempt.received.by_name.get(batch.source)
        if known is None and len(attempt.received.streams) >= self._settings.most_sources:
            raise TooLarge(
                f"the attempt has {len(attempt.received.streams):,} sources already",
                where=batch.source,
                remedy="send several ranks as one source, or give sources names without numbers that keep growing",
            )
        data, key, offset = self._news(attempt, batch, known)
        if known is not None and not data:
            return None, known
        if known is None:
            self._quotas.check_source(batch.job, self._jobs.sources)
        definition = known.definition if known is not None else Definition(
            batch.job, attempt.number, batch.source, batch.rank, batch.node
        )  # fmt: skip
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        now = self._clock.now()
        stream = known if known is not None else attempt.enter(definition)

        def done(entry: Entry, failure: Exception | None) -> None:
            attempt.received.unanswered -= 1
            if failure is not None:
                stream.refused, stream.refused_at = max(stream.refused, offset + len(data)), self._clock.steady()
                _back_to_disk(stream, key)
                if not future.done():
                    future.set_exception(failure)
                return
            stream.durable = offset + len(data)
            stream.last_seen = max(stream.last_seen, now)
            self._telemetry.accepted_bytes.inc(len(data))
            self._telemetry.project_bytes.labels(attempt.project).inc(len(data))
            self._jobs.push(attempt, Item(entry.lsn, DATA, stream.number, offset, key, now, data))
            if not future.done():
                future.set_result(stream.durable)

        self._journal.append(Entry(definition, DATA, offset, key, int(now * 1000), data, done))
        attempt.received.unanswered += 1
        stream.received = offset + len(data)
        if offset == 0 and not stream.head:
            stream.head = data[:HEAD]
        self._remember(stream, key, now)
        return future, stream

    def _news(self, attempt: LiveAttempt, batch: Batch, known: Stream | None) -> tuple[bytes, int, int]:
        """(the part of the batch that is not stored yet, the key to recognise it by if it has no offset, its offset)."""
        received = known.received if known is not None else 0
        if batch.offset is None:
            key = key_of(batch.key, batch.data)
            return b"" if known is not None and self._seen(known, key) else batch.data, key, received
        if batch.offset > received:
            if self._jobs.may_lack(attempt, batch.offset - received):  # the sender was told that we have it, and has deleted it
                return batch.data, 0, batch.offset
            if known is not None and self._follows_a_refusal(batch.offset, len(batch.data), known):
                raise Unavailable(
                    "what comes before this could not be written to disk",
                    where=batch.source,
                    remedy=f"send again from offset {received}, where the last answer of success ended",
                    retry_after_s=5,
                )
            raise OffsetGap(batch.source, received, batch.offset)
        if batch.offset == 0 and known is not None and known.head:
            same = min(len(known.head), len(batch.data))
            if known.head[:same] != batch.data[:same]:
                raise Conflict(
                    "the source began with other bytes before: two writers use one name, or the file was rotated",
                    where=batch.source,
                    remedy="give each writer, and each file, a source name of its own",
                )
        return batch.data[received - batch.offset :], 0, received

    def _follows_a_refusal(self, offset: int, size: int, known: Stream) -> bool:
        """Whether the gap is our fault: a moment ago we refused the batch that would have filled it."""
        if offset > known.refused or self._clock.steady() - known.refused_at > _REFUSED_S:
            return False
        known.refused = max(known.refused, offset + size)
        return True

    def _remember(self, stream: Stream, key: int, now: float) -> None:
        if key:
            stream.keys[key] = now
            while len(stream.keys) > self._settings.duplicates:
                stream.keys.popitem(last=False)

    def _seen(self, stream: Stream, key: int) -> bool:
        at = stream.keys.get(key)
        return at is not None and self._clock.now() - at < self._settings.duplicates_s

    async def _settled(self, stream: Stream) -> None:
        """Wait until what a duplicate repeats is on disk: it may still be on its way."""
        wanted = stream.received
        while stream.durable < wanted:
            if stream.received < wanted:
                raise Unavailable("could not be written to disk", remedy="send it again", retry_after_s=1)
            await asyncio.sleep(0.005)

    # --- ends ----------------------------------------------------------------------------------------------------------------

    def _append_end(self, attempt: LiveAttempt, end: End) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        now = self._clock.now()

        def done(entry: Entry, failure: Exception | None) -> None:
            attempt.received.unanswered -= 1
            if failure is None:
                self._jobs.push(attempt, Item.of_end(entry.lsn, now, entry.data))
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(None)

        definition = Definition(attempt.job, attempt.number)
        self._journal.append(Entry(definition, CONTROL, 0, 0, int(now * 1000), end.as_bytes(), done))
        attempt.received.unanswered += 1
        return future

    def _end_from_within(self, attempt: LiveAttempt, end: End) -> None:
        future = self._append_end(attempt, end)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())


def _back_to_disk(stream: Stream, key: int) -> None:
    """A batch could not be written. Then all that was on its way after it fails too, in order."""
    stream.received = stream.durable
    stream.keys.pop(key, None)
    if not stream.durable:
        stream.head = b""
