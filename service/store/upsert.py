"""Insert or update rows, and insert very many, in the SQL of both databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, Update
from sqlalchemy.dialects import postgresql, sqlite


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Sequence[str] | None = None
) -> None:
    """Insert ``rows``. If a primary key exists, set ``changes`` (by default all given columns)."""
    columns = tuple(changes) if changes is not None else None
    connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0]), columns), list(rows))


@cache
def _upsert(dialect: str, table: Table, given: tuple[str, ...], changes: tuple[str, ...] | None) -> Any:
    """The statement, cached: to build it takes longer than to run it."""
    keys = [column.name for column in table.primary_key]
    module: Any = sqlite if dialect == "sqlite" else postgresql
    statement = module.insert(table)
    columns = changes if changes is not None else [name for name in given if name not in keys]
    return statement.on_conflict_do_update(index_elements=keys, set_={name: statement.excluded[name] for name in columns})


def update_many(connection: Connection, statement: Update, rows: Iterable[Mapping[str, Any]]) -> None:
    """Run ``statement`` for each of ``rows``, which give its ``bindparam`` values and the columns to set."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault(tuple(row), []).append(row)
    for some in alike.values():
        connection.execute(statement, some)


def insert_many(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """The fastest way of each driver to insert. Names are our own; values are parameters."""
    names = ", ".join(columns)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        connection.exec_driver_sql(f"insert into {table.name} ({names}) values ({marks})", list(rows))  # noqa: S608
        return
    cursor = connection.connection.cursor()
    with cursor, cursor.copy(f"copy {table.name} ({names}) from stdin") as copy:  # type: ignore[attr-defined]
        for row in rows:
            copy.write_row(row)
