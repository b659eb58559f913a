"""What the service knows: in SQLite without configuration, or in PostgreSQL by URL. All SQL is in this package.

``Store`` owns the engine. One thread does all writes, one transaction after the other. So SQLite never says that it is locked,
and the transactions of two services do not mix. Any thread may read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError, SQLAlchemyError

from diagnose.errors import DiagnoseError, said_first
from service.errors import Unavailable
from service.store import lease, seen
from service.store.lease import Claim

T = TypeVar("T")
_READERS = 8
_TIMEOUT_S = 10
_SEEN_KIB, _READS_KIB, _WRITES_KIB = 2_000, 8_000, 16_000
"""How much of the database SQLite keeps in memory: for each connection that reads for a token of some projects, for each that
reads all, and for the one that writes. A write empties the memory of the others, so they gain less from it. What reading has is
enough for the jobs that a page over three months asks for.
"""
_LOCK = 7_304_118_226
"""services that share a PostgreSQL take turns at writing"""


class Store:
    """One database."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            parsed = make_url(url)
            if parsed.drivername in ("postgres", "postgresql"):
                parsed = parsed.set(drivername="postgresql+psycopg")
            self.is_sqlite = parsed.get_backend_name() == "sqlite"
            if parsed.get_backend_name() not in ("sqlite", "postgresql"):
                raise NoSuchModuleError(parsed.drivername)
            options: dict[str, Any] = {"pool_pre_ping": not self.is_sqlite}
            many = {"pool_size": _READERS + 2, "max_overflow": 4, "pool_use_lifo": True}
            if self.is_sqlite:
                options["connect_args"] = {"timeout": _TIMEOUT_S, "check_same_thread": False}
            else:
                options["pool_timeout"] = _TIMEOUT_S
                options["connect_args"] = {"connect_timeout": 5, "options": "-c statement_timeout=30000"}
            self.engine: Engine = create_engine(parsed, **options, **many)
            self._seen = create_engine(parsed, **options, **many)
            self._writes = create_engine(parsed, **options, pool_size=1, max_overflow=0)
        except (ArgumentError, NoSuchModuleError):
            raise DiagnoseError(
                "this is not the URL of a database",
                where=_shown(url),
                remedy="give sqlite:///PATH or postgresql://USER@HOST/NAME",
            ) from None
        except ImportError:
            raise DiagnoseError(
                "the driver of PostgreSQL is not installed", where=_shown(url), remedy="pip install 'diagnose-train[postgres]'"
            ) from None
        if self.is_sqlite:
            for engine, cache in ((self.engine, _READS_KIB), (self._seen, _SEEN_KIB), (self._writes, _WRITES_KIB)):
                event.listen(engine, "connect", partial(_for_sqlite, cache))
        event.listen(self._seen, "connect", lambda connection, _: seen.prepare(connection, self.is_sqlite))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        self._writing = threading.Lock()
        self._claim: Claim | None = None

    @staticmethod
    def in_folder(folder: Path) -> Store:
        """The store in a data folder: a SQLite file, which is the default."""
        return Store.at(folder / "diagnose.db")

    @staticmethod
    def at(path: Path) -> Store:
        """The store in a SQLite file, whatever signs its path has: in a URL some of them mean something."""
        return Store(URL.create("sqlite", database=str(path)).render_as_string())

    def migrate(self) -> None:
        """Bring the tables up to date."""
        self._prepare(None)

    def take(self, claim: Claim) -> str | None:
        """Bring the tables up to date, and take the database for this service alone. Refuses if another service has it.

        Returns who had it before, if that was a service with another data folder.
        """
        self._prepare(claim)
        before = self.write(lambda connection: lease.take(connection, claim))
        self._claim = claim
        return before

    def beat(self) -> None:
        """Write that this service is alive. ``LeaseLost`` if another one has the database now."""
        claim = self._claim
        if claim is not None:
            self.write(lambda connection: lease.beat(connection, claim))

    def give_back(self) -> None:
        """Let another service have the database at once."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self.write(lambda connection: lease.give_back(connection, claim))

    def _prepare(self, claim: Claim | None) -> None:
        from service.store.migrations.upgrade import upgrade

        try:
            upgrade(self.engine, claim)
        except (OperationalError, InterfaceError) as error:
            raise DiagnoseError(
                f"the database cannot be used: {said_first(error)}",
                where=_shown(self.url),
                remedy="check that it runs, that the URL is right and that the user may create tables",
            ) from None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in one transaction, after all earlier ones. For threads; the event loop uses ``awrite``."""
        with self._writing, self._writes.begin() as connection:
            if self.is_sqlite:  # locked from the first read on: no other process may change what this is about to change
                connection.exec_driver_sql("begin immediate")
            else:  # the ids of the audit trail must be in order, because webhooks read on from an id
                connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
            if self._claim is not None:
                lease.check_held(connection, self._claim.holder)
            return work(connection)

    def read(self, work: Callable[[Connection], T], projects: Collection[str] | None = None) -> T:
        """``projects``: whose rows there are for it; None: all."""
        if projects is None:
            with self.engine.connect() as connection:
                return work(connection)
        with self.engine.connect() as connection:
            if seen.all_there_is(connection, projects):
                return work(connection)
        with self._seen.connect() as connection:
            seen.only(connection, projects)
            return work(connection)

    async def awrite(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._writer, self.write, work)

    async def aread(self, work: Callable[[Connection], T], projects: Collection[str] | None = None) -> T:
        return await self._run(self._readers, lambda asked: self.read(asked, projects), work)

    async def _run(self, pool: ThreadPoolExecutor, how: Callable[[Callable[[Connection], T]], T], work: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, how, work)
        except SQLAlchemyError as error:
            if away(error):
                raise Unavailable(
                    "the database does not answer", remedy="try again; what was accepted is safe", retry_after_s=2
                ) from None
            raise

    def close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        for engine in (self.engine, self._seen, self._writes):
            engine.dispose()


class Within:
    """An open transaction, in the form of a store. What is done through it is committed with it, or not at all."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)

    read = write


def away(error: Exception) -> bool:
    """Whether a later try may succeed: no connection, locked, disk full, shut down."""
    return bool(
        isinstance(error, OperationalError | InterfaceError)
        or (isinstance(error, DBAPIError) and error.connection_invalidated)
        or type(error).__name__ == "TimeoutError"
    )


def _shown(url: str) -> str:
    """``url`` without its password."""
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except ArgumentError:
        return "the database URL"


def _for_sqlite(cache_kib: int, connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("pragma journal_mode = wal")
    cursor.execute("pragma synchronous = full")  # the journal deletes its copy once this has it, so it must be on disk
    cursor.execute("pragma foreign_keys = on")
    cursor.execute(f"pragma cache_size = -{cache_kib}")
    cursor.execute("pragma journal_size_limit = 67108864")
    cursor.close()
