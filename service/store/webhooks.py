"""Webhooks, and what is still to be delivered to them.

The audit trail is the outbox. Each webhook has read it up to its ``cursor``. Deliveries and cursor change in one transaction,
so every entry becomes one delivery, even if a process is killed. All writers of the trail use ``Store.write``, so its ids are
in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from service.errors import Conflict
from service.projects import parted
from service.store import tables as t
from service.store.reading import record
from service.store.tokens import check_project

_STATES = ("proposed", "approved", "dispatched", "running", "succeeded", "failed", "expired", "rejected")
KINDS = {
    "failures": ("job.failed",),
    "alarms": ("job.alarm",),
    "regressions": ("failure.regressed",),
    "actions": tuple(f"action.{state}" for state in _STATES),
}
"""what a webhook can ask for -> entries of the audit trail"""
FORMATS = ("cloudevents", "slack", "alertmanager")
_MOST = 50
_A_ROUND = 500
_WAITING = 10_000
"""deliveries that may wait for one receiver; then the oldest are given up"""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Who is told, and of what."""

    id: int
    url: str
    format: str
    secret: str
    events: tuple[str, ...]
    projects: tuple[str, ...] | None
    """None: all"""
    active: bool
    off_because: str | None
    created: float


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened, to be sent."""

    id: str
    kind: str
    at: float
    subject: str
    data: dict[str, Any]

    @property
    def project(self) -> str:
        """Whose it is. What is about no job is about the cluster's nodes: it is told who runs the cluster."""
        return parted(self.data.get("job") or "")[0]

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "kind": self.kind, "at": self.at, "subject": self.subject, "data": self.data}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice on its way to one receiver."""

    id: int
    webhook: int
    notice: Notice
    tries: int
    created: float


def listed(connection: Connection) -> list[Webhook]:
    return [_webhook(row) for row in connection.execute(select(t.webhooks).order_by(t.webhooks.c.id))]


def find(connection: Connection, webhook: int) -> Webhook | None:
    row = connection.execute(select(t.webhooks).where(t.webhooks.c.id == webhook)).first()
    return _webhook(row) if row is not None else None


def standing(connection: Connection) -> dict[int, dict[str, Any]]:
    """The state of each webhook: what waits, and the last answer."""
    d = t.deliveries.c
    waiting = connection.execute(select(d.webhook_id, func.count()).where(d.state == "waiting").group_by(d.webhook_id))
    found: dict[int, dict[str, Any]] = {which: {"waiting": count} for which, count in waiting}
    latest = select(func.max(d.id)).where(d.last_status.is_not(None)).group_by(d.webhook_id)
    for row in connection.execute(select(d.webhook_id, d.last_status).where(d.id.in_(latest))):
        found.setdefault(row.webhook_id, {})["last_status"] = row.last_status
    return found


def add(
    connection: Connection, url: str, form: str, secret: str, events: tuple[str, ...], who: str, now: float,
    projects: tuple[str, ...] | None = None,
) -> int:  # fmt: skip
    """Make a new webhook. It is told of what happens from now on, in ``projects`` or everywhere."""
    for project in projects or ():
        check_project(project)
    if (connection.execute(select(func.count()).select_from(t.webhooks)).scalar() or 0) >= _MOST:
        raise Conflict(f"there are {_MOST} webhooks already", remedy="remove one first: diagnose webhooks remove ID")
    values = {"url": url, "format": form, "secret": secret, "events": list(events), "active": True, "created": now,
              "projects": list(projects) if projects else None}  # fmt: skip
    made = int(
        connection.execute(insert(t.webhooks).values(cursor=_end(connection), **values).returning(t.webhooks.c.id)).scalar_one()
    )
    said = {"format": form, "events": list(events), "projects": values["projects"]}
    record(connection, who, "webhook.added", f"webhook/{made}", said, now)
    return made


def remove(connection: Connection, webhook: int, who: str, now: float) -> bool:
    gone = connection.execute(delete(t.webhooks).where(t.webhooks.c.id == webhook)).rowcount > 0
    if gone:
        record(connection, who, "webhook.removed", f"webhook/{webhook}", {}, now)
    return gone


def switch_off(connection: Connection, webhook: int, why: str, now: float) -> None:
    """Switch a webhook off because its receiver said that it is gone for good."""
    connection.execute(update(t.webhooks).where(t.webhooks.c.id == webhook).values(active=False, off_because=why))
    w = t.deliveries.c
    connection.execute(
        update(t.deliveries).where(w.webhook_id == webhook, w.state == "waiting").values(state="given_up", last_status=why)
    )
    record(connection, "courier", "webhook.off", f"webhook/{webhook}", {"why": why}, now)


# --- the outbox ---------------------------------------------------------------------------------------------------------------


def news(connection: Connection) -> bool:
    """Whether the trail has entries that some webhook has not read yet."""
    w, a = t.webhooks.c, t.audit.c
    return bool(connection.execute(select(exists().where(w.active, a.id > w.cursor, a.what.in_(_all())))).scalar())


def queue(connection: Connection, now: float) -> int:
    """Make deliveries of new entries of the trail. Returns how many."""
    made = 0
    a, w = t.audit.c, t.webhooks.c
    end = _end(connection)
    for row in connection.execute(select(w.id, w.cursor, w.events, w.projects).where(w.active, w.cursor < end)).all():
        kinds = [kind for event in row.events for kind in KINDS.get(event, ())]
        entries = connection.execute(
            select(t.audit).where(a.id > row.cursor, a.what.in_(kinds)).order_by(a.id).limit(_A_ROUND)
        ).all()
        deliveries = [
            {"webhook_id": row.id, "event": notice.kind, "body": notice.as_dict(), "state": "waiting", "tries": 0,
             "next_at": now, "created": now}
            for notice in (_notice(connection, entry) for entry in entries)
            if not row.projects or notice.project in row.projects
        ]  # fmt: skip
        if deliveries:
            connection.execute(insert(t.deliveries), deliveries)
        made += len(deliveries)
        read_to = entries[-1].id if len(entries) == _A_ROUND else end
        connection.execute(update(t.webhooks).where(w.id == row.id).values(cursor=read_to))
        _bound(connection, row.id)
    return made


def due(connection: Connection, webhook: int, now: float, limit: int) -> list[Delivery]:
    """What is to be sent to a webhook now, oldest first."""
    d = t.deliveries.c
    rows = connection.execute(
        select(d.id, d.body, d.tries, d.created)
        .where(d.webhook_id == webhook, d.state == "waiting", d.next_at <= now)
        .order_by(d.id)
        .limit(limit)
    )
    return [Delivery(row.id, webhook, Notice(**row.body), row.tries, row.created) for row in rows]


def waiting_for(connection: Connection, now: float) -> list[int]:
    """Active webhooks with something to send now."""
    d, w = t.deliveries.c, t.webhooks.c
    rows = connection.execute(
        select(d.webhook_id)
        .distinct()
        .join(t.webhooks, w.id == d.webhook_id)
        .where(w.active, d.state == "waiting", d.next_at <= now)
    )
    return list(rows.scalars())


def delivered(connection: Connection, delivery: Delivery, status: str) -> None:
    _settle(connection, delivery, state="delivered", last_status=status)


def put_off(connection: Connection, delivery: Delivery, status: str, next_at: float) -> None:
    """It did not arrive: try again later."""
    _settle(connection, delivery, state="waiting", last_status=status, next_at=next_at)


def give_up(connection: Connection, delivery: Delivery, status: str, now: float) -> None:
    """It never arrived and is not tried again. The audit trail gets an entry."""
    _settle(connection, delivery, state="given_up", last_status=status)
    detail = {"notice": delivery.notice.id, "tries": delivery.tries + 1, "last": status}
    record(connection, "courier", "webhook.given_up", f"webhook/{delivery.webhook}", detail, now)


def forget(connection: Connection, before: float) -> int:
    """Delete deliveries that were done long ago."""
    d = t.deliveries.c
    return int(connection.execute(delete(t.deliveries).where(d.state != "waiting", d.created < before)).rowcount)


def deliveries(connection: Connection, webhook: int, limit: int) -> list[dict[str, Any]]:
    """The latest deliveries to a webhook."""
    d = t.deliveries.c
    rows = connection.execute(
        select(d.id, d.event, d.state, d.tries, d.next_at, d.last_status, d.created)
        .where(d.webhook_id == webhook)
        .order_by(d.id.desc())
        .limit(limit)
    )
    return [dict(row._mapping) for row in rows]


def _settle(connection: Connection, delivery: Delivery, **values: Any) -> None:
    connection.execute(update(t.deliveries).where(t.deliveries.c.id == delivery.id).values(tries=delivery.tries + 1, **values))


def _bound(connection: Connection, webhook: int) -> None:
    d = t.deliveries.c
    keep = (
        select(d.id).where(d.webhook_id == webhook, d.state == "waiting").order_by(d.id.desc()).offset(_WAITING - 1).limit(1)
    ).scalar_subquery()
    connection.execute(
        update(t.deliveries)
        .where(d.webhook_id == webhook, d.state == "waiting", d.id < keep)
        .values(state="given_up", last_status="too many waited")
    )


def _notice(connection: Connection, entry: Any) -> Notice:
    data = dict(entry.detail)
    if entry.what.startswith("action."):
        x = t.actions.c
        action = connection.execute(
            select(
                t.jobs.c.name.label("job"),
                t.attempts.c.number.label("attempt"),
                *(x.kind, x.nodes, x.why, x.mode, x.decided_by, x.unconfirmed),
            )
            .outerjoin(t.attempts, t.attempts.c.id == x.attempt_id)
            .outerjoin(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
            .where(x.id == int(entry.subject.removeprefix("action/")))
        ).first()
        state = entry.what.removeprefix("action.")
        data = {"action": int(entry.subject.removeprefix("action/")), "state": state, "who": entry.who}
        data["result"] = entry.detail.get("result")
        if action is not None:
            data |= dict(action._mapping)
    # A database that was made again counts from 1 again, so the time tells its entries from the old ones.
    return Notice(f"{entry.id}.{int(entry.at * 1000)}", entry.what, entry.at, entry.subject, data)


def _all() -> list[str]:
    return [kind for kinds in KINDS.values() for kind in kinds]


def _end(connection: Connection) -> int:
    return int(connection.execute(select(func.max(t.audit.c.id))).scalar() or 0)


def _webhook(row: Any) -> Webhook:
    projects = tuple(row.projects) if row.projects else None
    return Webhook(
        row.id, row.url, row.format, row.secret, tuple(row.events), projects, row.active, row.off_because, row.created
    )
