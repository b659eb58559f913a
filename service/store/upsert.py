"""Insert or update, and insert very many, in the words of both databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Sequence[str] | None = None
) -> None:
    """Insert ``rows``; where the primary key is there already, set ``changes`` (all columns given, unless named)."""
    keys = [column.name for column in table.primary_key]
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    columns = changes if changes is not None else [name for name in rows[0] if name not in keys]
    statement = statement.on_conflict_do_update(index_elements=keys, set_={name: statement.excluded[name] for name in columns})
    connection.execute(statement, list(rows))


def insert_many(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """The quickest way in that each driver has; names are our own, values go as parameters."""
    names = ", ".join(columns)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        connection.exec_driver_sql(f"insert into {table.name} ({names}) values ({marks})", list(rows))  # noqa: S608
        return
    cursor = connection.connection.cursor()
    with cursor, cursor.copy(f"copy {table.name} ({names}) from stdin") as copy:  # type: ignore[attr-defined]
        for row in rows:
            copy.write_row(row)
