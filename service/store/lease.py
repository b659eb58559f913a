"""Which service has the database. Only one may have it: it is known by its data folder, and shows by a heartbeat that it lives.

Positions in the database belong to one journal. If two services stored into one database, each would take the other's positions
for its own, and would skip records that it has acknowledged. So a service does not start while it sees the heartbeat of another
one. A service that stood still and was taken for dead can no longer write: each of its transactions checks that it has the
lease.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, select, text, update

from diagnose.errors import DiagnoseError
from service.errors import Unavailable
from service.store import tables as t
from service.store.upsert import upsert

BEAT_S = 5.0
STALE_S = 60.0
"""after so many seconds of silence a service counts as dead; it must be longer than its longest wait for the database"""


class LeaseLost(Unavailable):
    """Another service has the database now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who asks for the lease."""

    holder: str
    """this process"""
    home: str
    """its data folder: the holder of the folder's lock is alone with it, and need not wait for itself after a crash"""
    told: str
    """for people"""

    @staticmethod
    def of(folder: Path, name: str) -> Claim:
        """The claim of this process. ``name`` is in the folder, and so also in a copy of it; the number of the lock file is
        not.
        """
        home = f"{name}/{(folder / 'journal' / 'lock').stat().st_ino}"
        told = f"process {os.getpid()} on {socket.gethostname()} with --data {folder.absolute()}"
        return Claim(secrets.token_hex(12), home, told)


def check(connection: Connection, claim: Claim) -> None:
    """Refuse if another service has the database. This also works with the tables of an earlier version."""
    if not inspect(connection).has_table("lease"):
        return
    lease = t.lease.c
    row = connection.execute(select(lease.home, lease.told, lease.beat).where(lease.id == 1)).first()
    if row is None or row.home == claim.home:
        return
    silent_s = abs(_now(connection) - row.beat)
    if silent_s < STALE_S:
        raise DiagnoseError(
            f"another service uses this database: {row.told}, heard of {silent_s:.0f} s ago",
            where=connection.engine.url.render_as_string(hide_password=True),
            remedy=f"stop it, or give this one a --database of its own; if it has died, wait {STALE_S:.0f} s",
        )


def take(connection: Connection, claim: Claim) -> str | None:
    """Give the database to ``claim``. Returns who had it before, if that was a service with another data folder."""
    check(connection, claim)
    lease = t.lease.c
    before = connection.execute(select(lease.home, lease.told).where(lease.id == 1)).first()
    row = {"id": 1, "holder": claim.holder, "home": claim.home, "told": claim.told, "beat": _now(connection)}
    upsert(connection, t.lease, [row])
    return before.told if before is not None and before.home != claim.home else None


def beat(connection: Connection, claim: Claim) -> None:
    """Write that the service is alive. This also shows that the database can be written."""
    mine = t.lease.c.holder == claim.holder
    if not connection.execute(update(t.lease).where(mine).values(beat=_now(connection))).rowcount:
        raise lost()


def give_back(connection: Connection, claim: Claim) -> None:
    """Give the lease back, so that another service need not wait."""
    connection.execute(update(t.lease).where(t.lease.c.holder == claim.holder).values(beat=0.0))


def check_held(connection: Connection, holder: str) -> None:
    """Refuse if another service has taken the lease since. The SQL is plain text, because every transaction runs it."""
    found = connection.exec_driver_sql("select holder from lease where id = 1").scalar()
    if found != holder:
        raise lost()


def lost() -> LeaseLost:
    return LeaseLost(
        "another service has taken the database, for this one was not heard of for a minute",
        remedy="send it to the other service",
        retry_after_s=10,
    )


def _now(connection: Connection) -> float:
    """The time by the database's clock, which is the same for all. SQLite is on this machine."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(text("select extract(epoch from clock_timestamp())")).scalar_one())
