"""Migrations at start: the scripts lie in the package, so they run from a wheel too."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

SCRIPTS = Path(__file__).resolve().parent / "migrations"
_LOCK = 7_304_118_225
"""two services that start at once on one PostgreSQL take turns"""


def upgrade(engine: Engine, to: str = "head") -> None:
    """Run what is missing, all in one transaction."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        else:
            # A table that is made anew must not take with it what refers to it.
            connection.exec_driver_sql("pragma foreign_keys = off")
            connection.exec_driver_sql("begin immediate")
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, to)
    if engine.dialect.name == "sqlite":
        engine.dispose()  # connections that are made from now on look after foreign keys
