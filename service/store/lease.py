"""Which service has the database: one at a time, known by its data folder, and heard of by a heartbeat.

Positions in the journal are those of one journal. Two services that store into one database would each take what the other has
stored for its own, and leave out what they acknowledged. So a service that hears another one's heartbeat does not start. One
that was taken for dead while it stood still cannot write any more: each of its transactions looks whether the lease is its own.
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
"""silence after which a service counts as dead: longer than its longest wait for the database"""


class LeaseLost(Unavailable):
    """Another service has the database now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who asks for the lease."""

    holder: str
    """this process"""
    home: str
    """its data folder: who holds the folder's lock is alone with it, so it need not wait for itself after a crash"""
    told: str
    """for people"""

    @staticmethod
    def of(folder: Path, name: str) -> Claim:
        """``name`` is the folder's own; a copy of the folder has it too, but not the number of the folder's lock."""
        home = f"{name}/{(folder / 'journal' / 'lock').stat().st_ino}"
        told = f"process {os.getpid()} on {socket.gethostname()} with --data {folder.absolute()}"
        return Claim(secrets.token_hex(12), home, told)


def check(connection: Connection, claim: Claim) -> None:
    """Refuse if another service has the database. Also where the tables are those of an earlier version."""
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
    """The database is ``claim``'s from now on. Who had it before, if that was a service with another data folder."""
    check(connection, claim)
    lease = t.lease.c
    before = connection.execute(select(lease.home, lease.told).where(lease.id == 1)).first()
    row = {"id": 1, "holder": claim.holder, "home": claim.home, "told": claim.told, "beat": _now(connection)}
    upsert(connection, t.lease, [row])
    return before.told if before is not None and before.home != claim.home else None


def beat(connection: Connection, claim: Claim) -> None:
    """Write that the service is alive, which shows that the database can be written, too."""
    mine = t.lease.c.holder == claim.holder
    if not connection.execute(update(t.lease).where(mine).values(beat=_now(connection))).rowcount:
        raise lost()


def give_back(connection: Connection, claim: Claim) -> None:
    """Give the lease back, so that another service need not wait."""
    connection.execute(update(t.lease).where(t.lease.c.holder == claim.holder).values(beat=0.0))


def check_held(connection: Connection, holder: str) -> None:
    """Refuse if another one has taken the lease since. With plain words: it is asked in each transaction."""
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
    """By the database's clock, which is the same for all; SQLite is on this machine."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(text("select extract(epoch from clock_timestamp())")).scalar_one())
