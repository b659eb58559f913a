"""Deletes raw logs, kept lines and whole jobs: by age, by size, and on request of an administrator.

A sweep runs regularly, in transactions of a few thousand rows, so that others can write in between. ``store.deletions`` says
what is never swept, and what stays of a job. A deletion that was begun is always finished, even after a crash: it is written
down before anything is deleted, with the position in the journal up to which the job is gone. So what was deleted is not read
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from diagnose.backoff import Backoff
from service.errors import Conflict, Refused, Unavailable, Unknown
from service.events import Events
from service.journal import Journal
from service.live.jobs import Jobs
from service.raw import archive as raw
from service.raw.archive import Archive
from service.settings import Settings
from service.store import Store, reading
from service.store import deletions as stored
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.retention")

_DAY = 86_400.0
_AT_ONCE = 100
_BREATH_S = 0.01
_NAMED = 50
"""the audit trail names so many of the deleted attempts of a sweep"""
_WHO = "retention"
_CUT_OFF = {"why": "cut off"}
_BACKOFF = Backoff(2.0, 60.0)

May = Callable[[Connection, str], stored.Doomed]
"""what there is of a job that may be deleted; else raises ``Refused``; called when nothing of the job can change any more"""


class Retention:
    """Deletes. Runs on the event loop, except for ``recover``."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        journal: Journal,
        archive: Archive | None,
        events: Events,
        telemetry: Telemetry,
        settings: Settings,
    ) -> None:
        self._store, self._jobs, self._journal, self._archive = store, jobs, journal, archive
        self._events, self._telemetry, self._settings = events, telemetry, settings
        self._sweeper: asyncio.Task[None] | None = None
        self._deleting: set[asyncio.Task[dict[str, Any]]] = set()

    def recover(self) -> None:
        """Before the journal is read: tell the archive what is deleted."""
        if self._archive is not None:
            oldest = self._journal.oldest
            emptied = self._store.read(lambda connection: stored.raw_deleted(connection, oldest))
            self._archive.forget(self._store.read(stored.deleted), emptied)

    def start(self) -> None:
        """After the journal's recovery, and before the first request: it could be under the name of something that is half
        deleted.
        """
        self._store.write(lambda connection: stored.forget(connection, self._journal.oldest))
        for job in self._store.read(stored.begun):
            log.info("finishing the deletion of job %s", job)
            self._begin(job, _WHO, _there, _CUT_OFF)
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        """What is half done is finished at the next start."""
        for task in (*self._deleting, *((self._sweeper,) if self._sweeper is not None else ())):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            try:
                await self.sweep(time.time())
            except Exception as error:
                log.error("old data could not be deleted, and will be tried again: %s", error)

    async def sweep(self, now: float) -> None:
        """Delete what is over its time or size at ``now``."""
        s = self._settings
        if s.keep_jobs_days is not None:
            await self._sweep_jobs(now - s.keep_jobs_days * _DAY)
        if s.keep_lines_days is not None:
            await self._sweep_lines(now - s.keep_lines_days * _DAY)
        if self._archive is not None:
            if s.keep_raw_days is not None:
                await self._sweep_raw(now - s.keep_raw_days * _DAY, self._archive)
            if s.raw_limit is not None:
                await self._sweep_size(s.raw_limit, self._archive)
        self._telemetry.swept_at.set(now)

    # --- by age --------------------------------------------------------------------------------------------------------------

    async def _sweep_jobs(self, before: float) -> None:
        def may(connection: Connection, job: str) -> stored.Doomed:
            found = _there(connection, job)
            if not stored.old_jobs(connection, before, 1, job):
                raise Conflict("the job received something, or an action holds it", where=job)
            return found

        busy: set[str] = set()
        while True:
            names = await self._store.aread(lambda connection: stored.old_jobs(connection, before, _AT_ONCE + len(busy)))
            names = [name for name in names if name not in busy]
            if not names:
                return
            for name in names:
                try:
                    await self._delete(name, _WHO, may, {"why": "age", "days": self._settings.keep_jobs_days})
                except Refused:
                    busy.add(name)  # the next sweep finds it again, if it is still old

    async def _sweep_lines(self, before: float) -> None:
        deleted: list[stored.StoredAttempt] = []
        busy: set[int] = set()
        lines = 0
        while True:
            found = await self._store.aread(lambda connection: stored.old_lines(connection, before, _AT_ONCE + len(busy)))
            found = [one for one in found if one.id not in busy]
            if not found:
                break
            for one in found:
                gone = await self._old_lines(one, before)
                if gone is None:
                    busy.add(one.id)
                    continue
                lines += gone
                deleted.append(one)
        await self._record("lines.deleted", deleted, {"days": self._settings.keep_lines_days, "lines": lines})

    async def _old_lines(self, one: stored.StoredAttempt, before: float) -> int | None:
        """Delete an attempt's kept lines if that is still allowed. Returns how many; None: perhaps in the next sweep."""
        async with self._jobs.withdrawn(one.job, one.number) as out:
            if not out or not await self._store.awrite(
                lambda connection: stored.begin_lines(connection, one, before, time.time())
            ):
                return None
            return await self._lines(one.id)

    async def _sweep_raw(self, before: float, archive: Archive) -> None:
        def may(connection: Connection, one: stored.StoredAttempt) -> bool:
            return one in stored.old_raw(connection, before, 1, one.id)

        deleted: list[stored.StoredAttempt] = []
        busy: set[int] = set()
        freed = 0
        while True:
            found = await self._store.aread(lambda connection: stored.old_raw(connection, before, _AT_ONCE + len(busy)))
            found = [one for one in found if one.id not in busy]
            if not found:
                break
            for one in found:
                size = await self._raw(one, archive, may)
                if size is None:
                    busy.add(one.id)
                elif size:
                    freed += size
                    deleted.append(one)
        self._telemetry.raw_deleted_bytes.labels("age").inc(freed)
        await self._record("raw.deleted", deleted, {"why": "age", "days": self._settings.keep_raw_days, "bytes": freed})

    async def _raw(
        self, one: stored.StoredAttempt, archive: Archive, may: Callable[[Connection, stored.StoredAttempt], bool]
    ) -> int | None:
        """Delete an attempt's raw logs if that is still allowed. Returns the bytes; None: perhaps in the next sweep."""
        async with self._jobs.withdrawn(one.job, one.number) as out:
            if not out or not await self._store.aread(lambda connection: may(connection, one)):
                return None
            now = time.time()
            archive.forget({}, {(one.job, one.number): now})
            try:
                size = await asyncio.to_thread(archive.delete, one.job, one.number)
            except OSError as error:
                log.error("the raw logs of job %s, attempt %d, cannot be deleted: %s", one.job, one.number, _said(error))
                return None
            await self._store.awrite(lambda connection: stored.raw_is_deleted(connection, [one.id], now))
            return size

    async def _record(self, what: str, deleted: list[stored.StoredAttempt], detail: dict[str, Any]) -> None:
        """Enter into the audit trail what a sweep deleted, if anything."""
        if not deleted:
            return
        self._telemetry.deleted.labels(what.partition(".")[0]).inc(len(deleted))
        log.info("%s: %d attempts", what, len(deleted))
        named = [{"job": one.job, "attempt": one.number} for one in deleted[:_NAMED]]
        told = {**detail, "attempts": len(deleted), "first": named}
        await self._store.awrite(lambda connection: reading.record(connection, _WHO, what, "retention", told, time.time()))

    # --- by size -------------------------------------------------------------------------------------------------------------

    async def _sweep_size(self, most: int, archive: Archive) -> None:
        """Delete raw logs of attempts that have ended, the oldest first, until all are within ``most`` bytes."""
        found = await asyncio.to_thread(lambda: sorted(_on_disk(archive.folder)))
        total = sum(size for _, size, _ in found)
        deleted: list[stored.StoredAttempt] = []
        freed = 0
        for _, size, folder in found:
            if total - freed <= most:
                break
            job = await asyncio.to_thread(_job_of, folder.parent)
            if job is None:
                continue
            number = int(folder.name)
            key = await self._store.aread(lambda connection, j=job, n=number: stored.ended(connection, j, n))  # type: ignore[misc]
            if key is None:
                continue  # it runs, or another database has it
            one = stored.StoredAttempt(key, job, number)
            if await self._raw(one, archive, stored.has_ended) is not None:
                freed += size
                deleted.append(one)
        self._telemetry.raw_disk_bytes.set(total - freed)
        self._telemetry.raw_deleted_bytes.labels("size").inc(freed)
        await self._record("raw.deleted", deleted, {"why": "size", "limit": most, "bytes": freed})

    # --- one job -------------------------------------------------------------------------------------------------------------

    async def delete(self, job: str, who: str, *, labels: bool = False) -> dict[str, Any]:
        """Delete a job on request. ``labels``: even if a person corrected it."""

        def may(connection: Connection, job: str) -> stored.Doomed:
            found = _there(connection, job)
            if found.state == "running":
                raise Conflict("the job still runs", where=job, remedy=f"end it first: POST /v1/jobs/{job}/end")
            if found.actions:
                raise Conflict("an action about the job is under way", where=job, remedy="wait for its result: GET /v1/actions")
            if found.corrections and not labels:
                raise Conflict(
                    f"a person corrected the job {found.corrections} times, which makes it a label",
                    where=job,
                    remedy="add labels=delete to delete the corrections too",
                )
            return found

        await self._store.aread(lambda connection: may(connection, job))
        return await self._delete(job, who, may, {"why": "asked"})

    async def _delete(self, job: str, who: str, may: May, detail: dict[str, Any]) -> dict[str, Any]:
        """Wait until it is done or something hinders it. A hindered deletion goes on without the caller."""
        task, hindered = self._begin(job, who, may, detail)
        ends: set[asyncio.Future[Any]] = {task, hindered}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Unavailable(
                f"it cannot be deleted yet: {hindered.result()}",
                where=job,
                remedy="this is tried again until all of it is gone; nothing is taken under its name meanwhile",
            )
        return task.result()

    def _begin(
        self, job: str, who: str, may: May, detail: dict[str, Any]
    ) -> tuple[asyncio.Task[dict[str, Any]], asyncio.Future[str]]:
        """(the deletion, which goes on even if the caller goes away; what hinders it, if anything does)."""
        hindered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._gone(job, who, may, detail, hindered))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)
        return task, hindered

    async def _gone(
        self, job: str, who: str, may: May, detail: dict[str, Any], hindered: asyncio.Future[str]
    ) -> dict[str, Any]:
        async with self._jobs.withdrawn(job) as out:
            if not out:
                what = "something of the job is being read, sent or deleted"
                raise Conflict(what, where=job, remedy="try again", retry_after_s=5)
            lsn = self._journal.lsn

            def begin(connection: Connection) -> stored.Doomed:
                found = may(connection, job)  # something may have come since that forbids it
                stored.begin(connection, job, lsn, time.time())
                return found

            found = await self._store.awrite(begin)
            freed = lines = 0
            failures = 0
            if self._archive is not None:
                self._archive.forget({job: lsn})
            while True:
                try:
                    if self._archive is not None:
                        freed += await asyncio.to_thread(self._archive.delete, job)
                    for attempt in found.attempts:
                        lines += await self._lines(attempt)
                        await self._store.awrite(lambda connection, a=attempt: stored.delete_attempt(connection, a))  # type: ignore[misc]
                    told = {"attempts": len(found.attempts), "lines": lines, "raw_bytes": freed}
                    whole = {**detail, "corrections": found.corrections, **told}
                    await self._store.awrite(lambda connection, w=whole: stored.finish(connection, job, w, who, time.time()))  # type: ignore[misc]
                    break
                except (Unavailable, OSError) as error:  # nobody may add to what is half deleted
                    log.error("job %s is not deleted yet, and will be tried again: %s", job, _said(error))
                    if not hindered.done():
                        hindered.set_result(_said(error))
                    failures += 1
                    await asyncio.sleep(_BACKOFF.after(failures))
        self._telemetry.deleted.labels("jobs").inc()
        self._telemetry.raw_deleted_bytes.labels(str(detail["why"])).inc(freed)
        self._events.publish("job.deleted", job=job, who=who)
        log.info("deleted job %s for %s", job, who)
        return {"job": job, **told}

    async def _lines(self, attempt: int) -> int:
        """Delete an attempt's kept lines, part by part. Returns how many."""
        gone = 0
        while some := await self._store.awrite(lambda connection: stored.delete_lines(connection, attempt, time.time())):
            gone += some
            await asyncio.sleep(_BREATH_S)
        return gone


def _there(connection: Connection, job: str) -> stored.Doomed:
    found = stored.doomed(connection, job)
    if found is None:
        raise Unknown("there is no such job", where=job, remedy="GET /v1/jobs lists what there is")
    return found


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _on_disk(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """(when it was last written, bytes, folder) of each attempt's raw logs."""
    for job in raw.jobs(folder):
        for attempt in job.iterdir():
            if attempt.name.isdecimal():
                told = [part.stat() for part in attempt.rglob("*.zst")]
                if told:
                    yield max(one.st_mtime for one in told), sum(one.st_size for one in told), attempt


def _job_of(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / raw.JOB).read_text())["job"])
    except (OSError, ValueError, KeyError):
        return None
