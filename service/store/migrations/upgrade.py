"""Migrations at start. The scripts are in the package, so they also run from a wheel."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from diagnose.errors import DiagnoseError
from service.store.lease import Claim, check

SCRIPTS = Path(__file__).resolve().parent
_LOCK = 7_304_118_225
"""two services that start at once on one PostgreSQL take turns"""


def upgrade(engine: Engine, claim: Claim | None = None, to: str = "head") -> None:
    """Run the missing migrations up to ``to`` in one transaction. Refuses while a service other than ``claim`` runs."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        else:
            # When a table is made again, the rows that refer to it must stay.
            connection.exec_driver_sql("pragma foreign_keys = off")
            connection.exec_driver_sql("begin immediate")
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = connection
        _check_known(connection, ScriptDirectory.from_config(config))
        if claim is not None:
            check(connection, claim)
        command.upgrade(config, to)
    if engine.dialect.name == "sqlite":
        engine.dispose()  # connections that are made from now on check foreign keys


def _check_known(connection: Connection, scripts: ScriptDirectory) -> None:
    """Refuse a database of another version: its tables may mean something else."""
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
    if unknown:
        raise DiagnoseError(
            f"the database was made by another version of diagnose (its tables are at {', '.join(sorted(unknown))})",
            where=connection.engine.url.render_as_string(hide_password=True),
            remedy="install the version that made it, or give another database or data folder",
        )
