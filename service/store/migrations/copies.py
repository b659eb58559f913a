"""The whole database into files and back, for backups: as it is at one moment, while a service goes on writing to it.

A copy of SQLite is a SQLite file. A copy of PostgreSQL is a file per table, as ``COPY`` writes it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, delete, func, inspect, select, text, update
from sqlalchemy.exc import DatabaseError

from diagnose.errors import DiagnoseError
from service.store import Store
from service.store import tables as t
from service.store.migrations.upgrade import upgrade
from service.store.reading import record

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_FILE = "diagnose.db"
_ENDING = ".copy"
_VERSION = "alembic_version"
_MOST_SAID = 5
_DAMAGE = ("malformed", "not a database", "disk i/o error", "invalid page", "could not read block")
_OPEN = ("approved", "dispatched", "running")
_WHO = "restore"


def dump(store: Store, folder: Path) -> dict[str, Any]:
    """Write the database into ``folder``. Returns what ``load`` needs to know."""
    if store.is_sqlite:
        with contextlib.closing(sqlite3.connect(folder / _FILE)) as target:
            source = store.engine.raw_connection()
            try:
                source.driver_connection.backup(target)  # type: ignore[union-attr]
            finally:
                source.close()
            if problems := damaged(target):
                raise DiagnoseError(
                    f"the database is damaged: {problems[0]}", where=store.url, remedy="docs/service.md says what to do: backup"
                )
            target.execute("pragma journal_mode = delete")
        return {"kind": SQLITE}
    with store.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
        columns = {}
        for table in _tables(connection):
            columns[table.name] = names = [column.name for column in table.columns]
            command = f"copy {_quoted(table.name, names)} to stdout"
            file = open(folder / f"{table.name}{_ENDING}", "wb")  # noqa: SIM115
            with file, _cursor(connection) as cursor, cursor.copy(command) as copy:
                for block in copy:
                    file.write(block)
        return {"kind": POSTGRESQL, "revision": revision, "columns": columns}


def load(about: dict[str, Any], folder: Path, store: Store) -> None:
    """Fill an empty database from ``folder``, bring it up to date, and let a service take it."""
    if about["kind"] == POSTGRESQL:
        upgrade(store.engine, to=about["revision"])
        with store.engine.begin() as connection:
            for table in _tables(connection):
                if table.name not in about["columns"]:
                    continue
                with _cursor(connection) as cursor:
                    cursor.execute(f"truncate {_quoted(table.name)} cascade")
            for table in _tables(connection):
                if (names := about["columns"].get(table.name)) is None:
                    continue
                command = f"copy {_quoted(table.name, names)} from stdin"
                file = open(folder / f"{table.name}{_ENDING}", "rb")  # noqa: SIM115
                with file, _cursor(connection) as cursor, cursor.copy(command) as copy:
                    while block := file.read(1 << 20):
                        copy.write(block)
            _count_on(connection)
    store.migrate()
    store.write(_settle)


def is_empty(store: Store) -> bool:
    """Whether the database has no tables yet."""
    with store.engine.connect() as connection:
        return not inspect(connection).get_table_names()


def files(about: dict[str, Any]) -> list[str]:
    """The names of the files of a copy."""
    return [_FILE] if about["kind"] == SQLITE else [f"{name}{_ENDING}" for name in about["columns"]]


def damaged(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the pages of a SQLite database; nothing if it is whole."""
    try:
        said = [str(row[0]) for row in connection.execute(f"pragma quick_check({_MOST_SAID})")]
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return [] if said == ["ok"] else said


def tells_of_damage(error: Exception) -> bool:
    """Whether a database says by this that its pages are damaged."""
    said = str(error).lower()
    return isinstance(error, DatabaseError) and any(words in said for words in _DAMAGE)


def problem(store: Store) -> str | None:
    """What the database finds wrong with its own pages. It reads all of them, on a connection of its own."""
    if store.is_sqlite:
        with contextlib.closing(sqlite3.connect(f"file:{store.engine.url.database}?mode=ro", uri=True)) as connection:
            return next(iter(damaged(connection)), None)
    failures = "select coalesce(sum(checksum_failures), 0) from pg_stat_database where datname = current_database()"
    with store.engine.connect() as connection:
        found = int(connection.execute(text(failures)).scalar_one())
    return f"{found} pages had a wrong checksum" if found else None


def salvage(path: Path) -> dict[str, int]:
    """Make a new database of what can be read of a damaged SQLite file, and keep that file as ``*.damaged``.

    Returns the tables of which something is missing, with how many rows had to go because they belong to a missing one.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    store = Store.at(fresh)
    try:
        with contextlib.closing(sqlite3.connect(path)) as old:
            upgrade(store.engine, to=str(old.execute("select version_num from alembic_version").fetchone()[0]))
            with store.engine.begin() as connection:
                connection.exec_driver_sql("begin immediate")
                connection.exec_driver_sql("pragma defer_foreign_keys = on")  # a missing row may have been referred to
                new = connection.connection.driver_connection
                tables = _tables(connection)
                lost = {table.name: 0 for table in tables if not _rescued(old, new, table)}
                for table in tables:  # each after those that it refers to
                    gone = _orphans(connection, table)
                    if gone:
                        lost[table.name] = lost.get(table.name, 0) + gone
        store.migrate()
        store.write(_settle)
    except sqlite3.DatabaseError as error:
        fresh.unlink(missing_ok=True)
        raise DiagnoseError(
            f"nothing can be read of it: {error}", where=str(path), remedy="restore a backup: diagnose restore FILE"
        ) from None
    finally:
        store.close()
    for ending in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(path.with_name(f"{path.name}{ending}.damaged"))
    fresh.rename(path)
    return lost


def _orphans(connection: Connection, table: Any) -> int:
    """Delete rows that belong to a row that is missing. Returns how many."""
    gone = 0
    for key in table.foreign_keys:
        parent = select(key.column).where(key.column == key.parent)
        gone += connection.execute(delete(table).where(key.parent.is_not(None), ~parent.exists())).rowcount
    return gone


def _rescued(old: sqlite3.Connection, new: Any, table: Any) -> bool:
    """Copy what can be read of a table, from both of its ends. Returns whether that is all."""
    names = [column.name for column in table.columns]
    keys = [_quoted(column.name) for column in table.primary_key]
    marks = ", ".join("?" * len(names))
    insert_or_skip = f"insert or ignore into {_quoted(table.name, names)} values ({marks})"  # noqa: S608 - names of our own
    read = f"select {', '.join(_quoted(name) for name in names)} from {_quoted(table.name)} order by "  # noqa: S608
    for direction in ("asc", "desc"):
        try:
            for row in old.execute(read + ", ".join(f"{key} {direction}" for key in keys)):
                new.execute(insert_or_skip, row)
            return True
        except sqlite3.DatabaseError:
            continue
    return False


def _settle(connection: Connection) -> None:
    """The copy is of the past: nobody has the database, and what was about to be done may have been done long ago."""
    connection.execute(update(t.lease).values(beat=0.0))
    a, now = t.actions.c, time.time()
    given_up = connection.execute(select(a.id).where(a.state.in_(_OPEN))).scalars().all()
    connection.execute(update(t.actions).where(a.state.in_(_OPEN)).values(state="expired", lease_until=None, changed=now))
    for action in given_up:
        record(connection, _WHO, "action.expired", f"action/{action}", {"why": "restored from a backup"}, now)


def _tables(connection: Connection) -> list[Any]:
    """All tables, each after those that it refers to."""
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != _VERSION]


def _count_on(connection: Connection) -> None:
    """New rows get numbers after those that were loaded."""
    for table in _tables(connection):
        for column in table.primary_key:
            name = connection.execute(select(func.pg_get_serial_sequence(f'"{table.name}"', column.name))).scalar()
            if name is not None:
                last = connection.execute(select(func.max(column))).scalar()
                connection.execute(
                    text("select setval(:name, :at, :used)"), {"name": name, "at": last or 1, "used": bool(last)}
                )


def _cursor(connection: Connection) -> Any:
    return connection.connection.cursor()


def _quoted(table: str, columns: list[str] | None = None) -> str:
    """Names are those of our own tables."""
    quoted = ", ".join(f'"{name}"' for name in columns or [])
    return f'"{table}" ({quoted})' if columns else f'"{table}"'
