"""Reads again what lies on disk, while the service runs, so that damage is known before the data is needed.

- The journal's segments: every ten minutes, record by record. A damaged segment is not deleted but set aside. What is damaged
  there is still in memory, unless the service ends before it is stored.
- The database: a minute after the start, and then once a day. SQLite checks its pages, and PostgreSQL says whether pages with a
  wrong checksum were read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import said_first
from service.journal import Journal
from service.segments import Reader, Record
from service.store import Store
from service.store.migrations import copies
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.scrubber")

_FIRST_S, _JOURNAL_S, _DATABASE_S = 60.0, 600.0, 86_400.0
_A_ROUND = 512 << 20
"""bytes of the journal that are read at a time; there is more only while the database is away"""
_REMEDY = "make a new database of what can be read: diagnose restore --salvage (docs/service.md, backup)"


class Scrubber:
    """On the event loop; it reads on threads."""

    def __init__(self, journal: Journal, store: Store, telemetry: Telemetry) -> None:
        self._journal, self._store, self._telemetry = journal, store, telemetry
        self._read: dict[str, float] = {}
        """segment -> when it was last read again"""
        self.problem: str | None = None
        """what is wrong with the database"""

    async def run(self) -> None:
        await asyncio.sleep(_FIRST_S)
        await asyncio.gather(self._again(self.journal, _JOURNAL_S), self._again(self.database, _DATABASE_S))

    async def _again(self, look: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            try:
                await look()
            except Exception as error:
                log.warning("what lies on disk could not be read again: %s", error)
            await asyncio.sleep(every_s)

    async def journal(self) -> None:
        """Read segments again, those first that were not read for the longest time."""
        there = {path.name: (path, size) for path, size, _ in self._journal.durable()}
        self._read = {name: at for name, at in self._read.items() if name in there}
        left = _A_ROUND
        for name in sorted(there, key=lambda name: self._read.get(name, 0.0)):
            path, size = there[name]
            try:
                lost = await asyncio.to_thread(_damage, path, size)
            except FileNotFoundError:  # all of it is stored by now
                continue
            self._read[name] = time.monotonic()
            if lost is not None and self._journal.spoilt(path):
                self._telemetry.damaged_bytes.inc(lost)
                log.error("the disk has damaged %d bytes of %s: it is set aside once all in it is stored", lost, path)
            left -= size
            if left <= 0:
                return

    async def database(self) -> None:
        """Have the database check itself."""
        try:
            found = await asyncio.to_thread(copies.problem, self._store)
        except SQLAlchemyError as error:
            log.warning("the database could not be checked: %s", said_first(error))
            return
        self.problem = f"the database is damaged: {found}; {_REMEDY}" if found is not None else None
        if self.problem is not None:
            log.error("%s", self.problem)

    def note(self, error: Exception) -> bool:
        """Whether the database tells of damage by this error. Then ``/readyz`` says so from now on."""
        told = damage(error)
        if self.problem is None and told is not None:
            self.problem = told
            log.error("%s", told)
        return told is not None


def damage(error: Exception) -> str | None:
    """What to say, if the database tells of damage by this error."""
    return f"the database is damaged: {said_first(error)}; {_REMEDY}" if copies.tells_of_damage(error) else None


def _damage(path: Path, size: int) -> int | None:
    """Bytes of a segment that are no whole records; None: all are."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what is in memory says nothing about the disk
    reader = Reader(path)
    try:
        lost = 0
        for record in reader.records(size):
            lost += record.lost if isinstance(record, Record) else record.size
        lost += size - reader.end
        return lost if lost or reader.damaged else None
    finally:
        reader.close()
