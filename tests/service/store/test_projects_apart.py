"""Projects in the database: what a token of one sees, on both databases; and how a database of before comes to have them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, insert, select

from diagnose.learning.rule_store import metadata as rule_metadata
from service.store import Store, seen
from service.store import tables as t
from service.store.attempts import open_attempt
from service.store.migrations.upgrade import SCRIPTS
from tests.support.servers import Postgres


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


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A database whose tables are those of some time ago."""
    if request.param == "sqlite":
        return Store(f"sqlite:///{tmp_path / 'old.db'}")
    postgres: Postgres = request.getfixturevalue("postgres")
    return Store(postgres.database(f"t{time.time_ns()}"))


def at(engine: Engine, revision: str, rows: list[str]) -> None:
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        for row in rows:
            connection.exec_driver_sql(row)
    engine.dispose()


JOB = (
    "INSERT INTO jobs (name, labels, attempt, state, outcome, first_seen, last_seen{column}) "
    "VALUES ('{name}', '{{}}', 1, 'ended', 'failed', 1, 1{value})"
)
ATTEMPT = (
    "INSERT INTO attempts (job_id, number, state, outcome, started_at, last_seen, lsn, lines_in, bytes_in, lines_kept, "
    "bytes_kept) "
    "SELECT id, 1, 'ended', 'failed', 1, 1, 0, 0, 0, 0, 0 FROM jobs WHERE name = '{name}'"
)
GROUP = (
    "INSERT INTO groups (fingerprint, category, reason, title, first_seen, last_seen, count, gpu_seconds_lost, state, "
    "regressed) VALUES ('{name}', 'infrastructure', 'hang', '{name}', 1, 1, 1, 0, 'open', {false})"
)
OCCURRENCE = (
    "INSERT INTO occurrences (attempt_id, group_id, job_id, at, category, reason, gpu_seconds) "
    "SELECT a.id, g.id, j.id, 1, 'infrastructure', 'hang', 0 FROM jobs j JOIN attempts a ON a.job_id = j.id, groups g "
    "WHERE j.name = '{name}' AND g.fingerprint = '{group}'"
)


def rows(store: Store, jobs: dict[str, tuple[str | None, str]]) -> list[str]:
    """name -> (project, group)"""
    false = "0" if store.is_sqlite else "false"
    found = [GROUP.format(name=group, false=false) for group in sorted({group for _, group in jobs.values()})]
    for name, (project, group) in jobs.items():
        column, value = (", project", f", '{project}'") if project else ("", "")
        found += [JOB.format(name=name, column=column, value=value), ATTEMPT.format(name=name)]
        found += [OCCURRENCE.format(name=name, group=group)]
    return found


def test_a_database_without_projects_has_one(old: Store) -> None:
    at(old.engine, "0003", rows(old, {"run7": (None, "f"), "run8": (None, "f")}))
    old.migrate()

    def told(connection: Connection) -> Any:
        jobs = connection.execute(select(t.jobs.c.name, t.jobs.c.project).order_by(t.jobs.c.id)).all()
        groups = connection.execute(select(t.groups.c.project, t.groups.c.fingerprint)).all()
        speakers = connection.execute(select(t.speakers.c.binding)).scalars().all()
        return [tuple(row) for row in jobs], [tuple(row) for row in groups], speakers, count(t.occurrences)(connection)

    assert old.read(told) == ([("run7", "default"), ("run8", "default")], [("default", "f")], [{}, {}], 2)
    assert old.read(told, ("default",))[3] == 2
    old.close()


def test_jobs_of_projects_are_called_by_them(old: Store) -> None:
    jobs = {"run7": ("default", "mixed"), "run8": ("apes", "mixed"), "run9": ("apes", "own"), "run10": ("apes", "own")}
    at(old.engine, "0007", rows(old, {name: jobs[name] for name in jobs}))
    old.migrate()

    def told(connection: Connection) -> Any:
        names = connection.execute(select(t.jobs.c.name).order_by(t.jobs.c.id)).scalars().all()
        groups = connection.execute(select(t.groups.c.fingerprint, t.groups.c.project).order_by(t.groups.c.id)).all()
        return names, dict(tuple(row) for row in groups)

    assert old.read(told) == (["run7", "apes~run8", "apes~run9", "apes~run10"], {"mixed": "default", "own": "apes"})
    old.close()
