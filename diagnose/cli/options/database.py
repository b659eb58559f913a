"""The database of a service, for commands that change it while the service runs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.settings import Settings
    from service.store import Store


def options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Where the service is that a command changes: what was given to ``diagnose serve``."""
    group = parser.add_argument_group("which service", "Give the same values as to diagnose serve.")
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="configuration file of the service (default: $DIAGNOSE_SERVE_CONFIG)"
    )
    group.add_argument("--data", metavar="DIR", help="data folder of the service (default: ~/.local/share/diagnose/service)")
    group.add_argument("--database", metavar="URL", help="database of the service, if it is not in the data folder")
    return group


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Store]:
    """The database with this version's tables. It is created if it is missing."""
    from service.store import Store

    if settings.database is None:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(settings.database) if settings.database else Store.in_folder(settings.data)
    try:
        store.migrate()
        yield store
    finally:
        store.close()
