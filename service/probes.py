"""Whether the service works, found out by doing what it must do, not by asking whether it once could.

A probe is written to the journal's disk and to the database. The scanners are asked what they work on, and the two clocks are
compared. ``/readyz`` gives the result in sentences, and ``/metrics`` in numbers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import DiagnoseError, said_first
from service.clock import SYSTEM, Clock
from service.live.jobs import Jobs
from service.store import Store
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.probes")

_EVERY_S = 5.0
_FRESH_S = 1.0
"""more frequent questions get the last result, so that others cannot make us write as often as they like"""
_WAIT_S = 5.0
_STANDS_S = 60.0
"""a turn takes milliseconds, and the slowest diagnosis a few seconds"""
_JUMP_S = 2.0
_REMEMBERED_S = 3600.0
_PROBE = "probe"
_ROOM = 8 << 20
"""bytes that must have room on the disk of the journal: a push may be that large"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe found. None: nothing is wrong."""

    disk: str | None = None
    database: str | None = None
    scanners: str | None = None
    clock: str | None = None
    """nothing depends on the clock"""

    @property
    def problems(self) -> list[str]:
        return [told for told in (self.disk, self.database, self.scanners, self.clock) if told is not None]


@dataclass
class _Last:
    found: Found = field(default_factory=Found)
    at: float = float("-inf")


class Probes:
    """On the event loop."""

    def __init__(self, folder: Path, store: Store, jobs: Jobs, telemetry: Telemetry, clock: Clock = SYSTEM) -> None:
        self._folder, self._store, self._jobs, self._telemetry, self._clock = folder, store, jobs, telemetry, clock
        self._last = _Last()
        self._probing = asyncio.Lock()
        self._under_way: dict[str, asyncio.Future[str | None]] = {}
        self._apart = clock.now() - clock.steady()
        self._jumped: tuple[float, float] | None = None
        """(when by the steady clock, by how much)"""

    async def watch(self) -> None:
        """Look regularly, so that the numbers are right even if nobody asks."""
        while True:
            try:
                await self.found()
            except Exception:
                log.exception("probing")
            await asyncio.sleep(_EVERY_S)

    async def found(self) -> Found:
        """What the probes find now."""
        async with self._probing:
            if self._clock.steady() - self._last.at >= _FRESH_S:
                disk, database = await asyncio.gather(
                    self._within("disk", self._write_file, "the disk of the journal does not answer"),
                    self._within("database", self._write_row, "the database does not answer"),
                )
                self._last = _Last(Found(disk, database, self._scanners(), self._clock_problem()), self._clock.steady())
                self._count(self._last.found)
            return self._last.found

    async def _within(self, name: str, probe: Callable[[], str | None], silent: str) -> str | None:
        """The result of ``probe``. If the last one has not ended, no new one begins: a hanging disk would take thread after
        thread.
        """
        running = self._under_way.get(name)
        if running is None or running.done():
            running = self._under_way[name] = asyncio.ensure_future(asyncio.to_thread(probe))
        done, _ = await asyncio.wait((running,), timeout=_WAIT_S)
        return running.result() if done else silent

    def _write_file(self) -> str | None:
        """Write to disk as the journal does, where the largest push still has room."""
        path = self._folder / _PROBE
        try:
            path.unlink(missing_ok=True)
            disk = os.statvfs(self._folder)
            if disk.f_blocks and disk.f_bavail * disk.f_frsize < _ROOM:  # some file systems do not know their size
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _reserve(file)
                os.write(file, b"x" * 4096)
                os.fdatasync(file)
            finally:
                os.close(file)
                path.unlink()  # it must not take the room that it looks for, nor find that of its own next time
        except OSError as error:
            return f"the journal's folder {self._folder} cannot be written: {error.strerror}"
        return None

    def _write_row(self) -> str | None:
        try:
            self._store.beat()
        except SQLAlchemyError as error:
            return f"the database cannot be written: {said_first(error)}"
        except DiagnoseError as error:
            return str(error)
        return None

    def _scanners(self) -> str | None:
        standing = self._jobs.standing(_STANDS_S)
        self._telemetry.scanners_standing.set(len(standing))
        if not standing:
            return None
        return f"scanner {', '.join(map(str, standing))} makes no progress: logs are accepted, and wait to be read"

    def _clock_problem(self) -> str | None:
        apart, now = self._clock.now() - self._clock.steady(), self._clock.steady()
        by = apart - self._apart
        if abs(by) > _JUMP_S:
            log.warning("the clock was set by %+.1f s", by)
            self._telemetry.clock_jumps.inc()
            self._jumped = now, by
        self._apart = apart
        if self._jumped is None or now - self._jumped[0] > _REMEMBERED_S:
            return None
        return f"the clock was set by {self._jumped[1]:+.1f} s: times around then may be wrong"

    def _count(self, found: Found) -> None:
        self._telemetry.disk_up.set(found.disk is None)
        self._telemetry.database_up.set(found.database is None)
        unread, unstored = self._jobs.lag()
        self._telemetry.unread_age.set(unread)
        self._telemetry.unstored_age.set(unstored)


def _reserve(file: int) -> None:
    """A quota, too, says now that there is no room. What cannot be reserved says nothing."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    try:
        os.posix_fallocate(file, 0, _ROOM)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # so file systems answer that cannot do it
            raise
