"""Projects in the database: what a token of one sees, on both databases; and how a database of before comes to have them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from diagnose.learning.rule_store import metadata as rule_metadata
from service.store import Store, seen
from service.store import tables as t
from service.store.attempts import open_attempt


def count(table: Any) -> Any:
    return lambda connection: len(connection.execute(select(table)).all())


def test_each_table_is_thought_of() -> None:
    assert {*t.metadata.tables, *rule_metadata.tables, "alembic_version"} == seen.TABLES


def test_a_reader_of_some_projects_has_their_rows_and_no_others(store: Store) -> None:
    def fill(connection: Connection) -> None:
        for number, job in enumerate(("run7", "apes~run7", "bees~run7", "bees~run8")):
            opened = open_attempt(connection, job, None, {}, 1.0)
            source = {"attempt_id": opened.attempt_id, "number": 0, "name": "log", "node": f"n{number}", "received": 1}
            connection.execute(insert(t.sources).values(**source, last_seen=1.0))
            node = {"name": f"n{number}", "state": "isolated", "why": job, "first_seen": 1.0, "last_seen": 1.0, "failures": 9}
            connection.execute(insert(t.nodes).values(**node))
            project = job.partition("~")[0] if "~" in job else "default"
            group = {"project": project, "fingerprint": "f", "category": "c", "reason": "r", "title": job, "state": "open"}
            if number < 3:  # the same failure, once in each project
                connection.execute(insert(t.groups).values(**group, first_seen=1.0, last_seen=1.0, count=1))
        connection.execute(insert(t.tokens).values(name="x", hash="y", role="admin", created=1.0))

    store.write(fill)

    def told(connection: Connection) -> tuple[Any, ...]:
        jobs = connection.execute(select(t.jobs.c.name).order_by(t.jobs.c.id)).scalars().all()
        titles = connection.execute(select(t.groups.c.title)).scalars().all()
        nodes = connection.execute(select(t.nodes.c.name, t.nodes.c.why, t.nodes.c.failures).order_by(t.nodes.c.name)).all()
        return jobs, titles, [tuple(node) for node in nodes], count(t.attempts)(connection), count(t.tokens)(connection)

    assert store.read(told, ("apes",)) == (["apes~run7"], ["apes~run7"], [("n1", None, 0)], 1, 0)
    assert store.read(told, ("bees", "apes"))[0] == ["apes~run7", "bees~run7", "bees~run8"]
    jobs, titles, nodes, attempts, _ = store.read(told, ("default",))
    assert (jobs, titles, attempts) == (["run7"], ["run7"], 1)
    assert [node[:2] for node in nodes] == [("n0", "run7"), ("n1", "apes~run7"), ("n2", "bees~run7"), ("n3", "bees~run8")]
    assert len(store.read(told)[0]) == 4
    assert store.read(told, ("bees", "apes", "default"))[4] == 1  # there is nothing else: no view is in the way
    assert store.read(told, ("nobody'; drop table jobs; --",))[0] == []
