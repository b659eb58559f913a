"""Migrations at start: the scripts lie in the package, so they run from a wheel too."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

SCRIPTS = Path(__file__).resolve().parent / "migrations"
_LOCK = 7_304_118_225
"""two services that start at once on one PostgreSQL take turns"""


def upgrade(engine: Engine) -> None:
    """Run what is missing, all in one transaction."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
