"""The database as a token of some projects sees it: views before the tables of the same names, on connections of their own.

So the questions of pages and of the API are the same for everybody, and none can forget to leave out what belongs to others. A
table that has no view here is empty for who does not see all: a test holds the list to the tables.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, text

from service.projects import DEFAULT

_BY_ATTEMPT: Final = (
    "alarms",
    "checkpoints",
    "confirmations",
    "corrections",
    "decisions",
    "diagnoses",
    "evaluations",
    "kept_lines",
    "occurrence_nodes",
    "occurrences",
    "progress",
    "scores",
    "series",
    "sources",
    "speakers",
    "tasks",
)
_COMMON: Final = ("alembic_version", "lease")
"""what tells nothing of anybody"""
_HIDDEN: Final = (
    "deletions",
    "deliveries",
    "incident_words",
    "incidents",
    "quotas",
    "rule_counts",
    "rules",
    "tokens",
    "webhooks",
    "witnesses",
    "workloads",
)
"""what only an administrator, or the service itself, has a use for; rules that were learned hold lines of any project"""
_OWN: Final = "EXISTS (SELECT 1 FROM {s}jobs j WHERE j.id = {t}.job_id AND j.project IN {seen})"
_OF_ATTEMPT: Final = (
    "EXISTS (SELECT 1 FROM {s}attempts a JOIN {s}jobs j ON j.id = a.job_id WHERE a.id = {t}.attempt_id AND j.project IN {seen})"
)
_OF_NODE: Final = (
    "EXISTS (SELECT 1 FROM {s}sources o JOIN {s}attempts a ON a.id = o.attempt_id JOIN {s}jobs j ON j.id = a.job_id "
    "WHERE o.node = {t}.{column} AND j.project IN {seen})"
)
_COUNTED: Final = (
    "(SELECT {what} FROM {s}occurrence_nodes o JOIN {s}attempts a ON a.id = o.attempt_id JOIN {s}jobs j ON j.id = a.job_id "
    "WHERE o.node = {t}.name AND j.project IN {seen})"
)
_CLUSTER: Final = f"'{DEFAULT}' IN {{seen}}"
"""nodes are everybody's: who runs the cluster sees what is done with them, whoever's jobs are on them"""
WHERE: Final = {
    "jobs": "project IN {seen}",
    "groups": "project IN {seen}",
    "comments": "EXISTS (SELECT 1 FROM {s}groups g WHERE g.id = {t}.group_id AND g.project IN {seen})",
    "attempts": _OWN,
    **dict.fromkeys(_BY_ATTEMPT, _OF_ATTEMPT),
    "actions": f"{_OF_ATTEMPT} OR ({{t}}.attempt_id IS NULL AND {_CLUSTER})",
    "nodes": f"{_CLUSTER} OR {_OF_NODE.replace('{column}', 'name')}",
    "node_checks": f"{_CLUSTER} OR {_OF_NODE.replace('{column}', 'node')}",
    "node_findings": f"{_CLUSTER} OR {_OF_NODE.replace('{column}', 'node')}",
    "isolations": f"{_CLUSTER} OR {_OF_NODE.replace('{column}', 'node')}",
    # Asked of by the number of an action or a group that is seen itself.
    "audit": f"subject LIKE 'action/%' OR subject LIKE 'failure/%' OR (subject LIKE 'node/%' AND {_CLUSTER})",
    **dict.fromkeys(_HIDDEN, "1 = 0"),
}
"""table -> what is seen of it"""
TABLES: Final = frozenset([*WHERE, *_COMMON])
_NODES: Final = {
    "why": f"CASE WHEN {_CLUSTER} THEN why END",
    "last_failure": _COUNTED.replace("{what}", "max(o.at)"),
    "failures": _COUNTED.replace("{what}", "count(*)"),
}
_SQLITE: Final = "(SELECT project FROM temp.seen)"
_POSTGRESQL: Final = "(SELECT unnest(string_to_array(current_setting('diagnose.seen', true), '~')))"
"""no name of a project has the mark in it"""
_EXTREMES: Final = text(
    "SELECT (SELECT min(project) FROM jobs), (SELECT max(project) FROM jobs), "
    "(SELECT min(project) FROM groups), (SELECT max(project) FROM groups)"
)
"""at the ends of an index, however many rows there are"""


def prepare(connection: Any, sqlite: bool) -> None:
    """On a new connection of the driver: the views, which last as long as it does."""
    cursor = connection.cursor()
    if sqlite:
        schema, seen = "main.", _SQLITE
        cursor.execute("CREATE TEMP TABLE seen (project TEXT PRIMARY KEY)")
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    else:
        cursor.execute("SELECT current_schema()")
        schema, seen = f'"{cursor.fetchone()[0]}".', _POSTGRESQL
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
    there = {name for (name,) in cursor.fetchall()}
    for table, where in WHERE.items():
        if table not in there:
            continue
        columns = _columns(cursor, table, sqlite)
        other = _NODES if table == "nodes" else {}
        shown = ", ".join(f'{other.get(name) or "{t}." + name} AS "{name}"' for name in columns)
        view = f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM {{s}}{table} {{t}} WHERE {where}"  # noqa: S608 - our own names
        cursor.execute(view.format(s=schema, t="x", seen=seen))
    cursor.close()
    connection.commit()


def _columns(cursor: Any, table: str, sqlite: bool) -> list[str]:
    if sqlite:
        cursor.execute(f"SELECT name FROM pragma_table_info('{table}')")  # noqa: S608 - names of our own tables
    else:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = %s "
            "ORDER BY ordinal_position",
            (table,),
        )
    return [name for (name,) in cursor.fetchall()]


def only(connection: Connection, projects: Collection[str]) -> None:
    """For this transaction: what of these projects is there."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("DELETE FROM temp.seen"))
        connection.execute(text("INSERT INTO temp.seen VALUES (:project)"), [{"project": one} for one in set(projects)])
    else:
        connection.execute(text("SELECT set_config('diagnose.seen', :projects, true)"), {"projects": "~".join(projects)})


def all_there_is(connection: Connection, projects: Collection[str]) -> bool:
    """Whether there is nothing of other projects: most have one."""
    return all(found is None or found in projects for found in connection.execute(_EXTREMES).one())
