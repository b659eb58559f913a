"""Attempts in the database: open or create one, load its state after a crash, and store what was read in one transaction.

Exactly once: kept lines, counts, snapshot and the position in the journal are written together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from diagnose.compression.snapshot import StoredLine
from service.projects import NOBODY, Grant, parted
from service.store import confirmations, diagnoses
from service.store import tables as t
from service.store.flush import Flush, KeptRow, SourceState
from service.store.upsert import insert_many, update_many, upsert


@dataclass(slots=True)
class Opened:
    """An attempt, as the database knows it."""

    job_id: int
    attempt_id: int
    number: int
    latest: int
    """the latest attempt of the job"""
    lsn: int
    state: str
    ended_at: float | None
    ended_by: str | None
    exit_code: int | None
    signal: int | None
    started_at: float
    last_seen: float
    sources: list[SourceState]
    labels: dict[str, str]
    workload: str | None = None
    hangs: bool = False
    """the last diagnosis was that it hangs"""
    lines_deleted: float | None = None
    """when its kept lines were deleted: since then it cannot go on"""
    training_at: float | None = None
    """when its first step was seen"""
    end_state: str | None = None
    """Slurm's last state of the job"""
    made: bool = False
    """it is new, and who asked for it is its first speaker"""


def last_lsn(connection: Connection) -> int:
    """The last record of the journal that the database has."""
    attempts = connection.execute(select(func.max(t.attempts.c.lsn))).scalar() or 0
    return max(int(attempts), int(connection.execute(select(func.max(t.deletions.c.lsn))).scalar() or 0))


def latest_attempt(connection: Connection, job: str) -> int | None:
    return connection.execute(select(t.jobs.c.attempt).where(t.jobs.c.name == job)).scalar()


def ended_badly(connection: Connection, attempt_id: int) -> bool:
    """Whether something other than its log says that an attempt failed: an exit status, a signal, or the scheduler."""
    a = t.attempts.c
    row = connection.execute(select(a.exit_code, a.signal, a.ended_by, a.end_state).where(a.id == attempt_id)).first()
    if row is None:
        return False
    by_state = row.end_state not in (None, "COMPLETED", "REQUEUED")
    return bool(row.exit_code or row.signal or row.ended_by == "scheduler" or by_state)


def find_attempt(connection: Connection, job: str, number: int | None) -> Opened | None:
    """The attempt if it is known. ``number`` None means the latest."""
    j = t.jobs.c
    found = connection.execute(select(j.id, j.attempt, j.labels, j.reason).where(j.name == job)).first()
    if found is None:
        return None
    wanted = found.attempt if number is None else number
    row = connection.execute(select(t.attempts).where(t.attempts.c.job_id == found.id, t.attempts.c.number == wanted)).first()
    if row is None:
        return None
    sources = connection.execute(select(t.sources).where(t.sources.c.attempt_id == row.id).order_by(t.sources.c.number)).all()
    return Opened(
        found.id,
        row.id,
        wanted,
        found.attempt,
        row.lsn,
        row.state,
        row.ended_at,
        row.ended_by,
        row.exit_code,
        row.signal,
        row.started_at,
        row.last_seen,
        [_state(row) for row in sources],
        found.labels,
        row.workload,
        row.state == "running" and wanted == found.attempt and found.reason == "hang",
        row.lines_deleted,
        row.training_at,
        row.end_state,
    )


def _state(row: Any) -> SourceState:
    missing = tuple((begin, end) for begin, end in row.missing or ())
    return SourceState(
        row.number, row.name, row.rank, row.node, row.received, row.head or b"", row.keys or b"", row.last_seen, missing
    )


def open_attempt(
    connection: Connection, job: str, number: int | None, labels: dict[str, str], now: float, grant: Grant | None = None
) -> Opened:
    """The attempt, which is made if it is new. ``grant``: who speaks of it."""
    found = find_attempt(connection, job, number)
    if found is not None:
        return found
    j = t.jobs.c
    known = connection.execute(select(j.id, j.attempt).where(j.name == job)).first()
    wanted = number if number is not None else 1
    if known is None:
        values = {**_named(labels), "labels": labels, "project": parted(job)[0]}
        job_id = connection.execute(
            insert(t.jobs)
            .values(name=job, attempt=wanted, state="running", outcome="running", first_seen=now, last_seen=now, **values)
            .returning(t.jobs.c.id)
        ).scalar_one()
    else:
        job_id = known.id
        if wanted > known.attempt:
            connection.execute(
                update(t.jobs)
                .where(t.jobs.c.id == job_id)
                .values(attempt=wanted, state="running", outcome="running", category=None, reason=None, last_seen=now)
            )
    connection.execute(
        insert(t.attempts).values(
            job_id=job_id, number=wanted, state="running", outcome="running", started_at=now, last_seen=now, lsn=0
        )
    )
    opened = find_attempt(connection, job, wanted)
    assert opened is not None
    opened.made = True
    confirmations.enter_first(connection, [(opened.attempt_id, grant or NOBODY)])
    return opened


class Asked(NamedTuple):
    """An attempt that is to be opened."""

    job: str
    number: int | None
    labels: dict[str, str]
    at: float
    grant: Grant | None = None


def open_attempts(connection: Connection, asked: Sequence[Asked]) -> list[Opened]:
    """``open_attempt`` for many. All new jobs together take three statements: one costs more in Python than in the database."""
    j, a = t.jobs.c, t.attempts.c
    known = set(connection.execute(select(j.name).where(j.name.in_({one.job for one in asked}))).scalars())
    new: dict[str, Asked] = {}
    for one in asked:
        if one.job not in known:
            new.setdefault(one.job, one)
    opened: dict[int, Opened] = {}
    if new:
        common = {"state": "running", "outcome": "running"}
        jobs = [
            {
                "name": one.job,
                "attempt": one.number if one.number is not None else 1,
                "first_seen": one.at,
                "last_seen": one.at,
                "labels": one.labels,
                "project": parted(one.job)[0],
                **_named(one.labels),
                **common,
            }
            for one in new.values()
        ]
        job_ids = {name: number for number, name in connection.execute(insert(t.jobs).returning(j.id, j.name), jobs)}
        attempts = [
            {
                "job_id": job_ids[job["name"]],
                "number": job["attempt"],
                "started_at": job["first_seen"],
                "last_seen": job["first_seen"],
                "lsn": 0,
                **common,
            }
            for job in jobs
        ]
        made = connection.execute(insert(t.attempts).returning(a.job_id, a.id), attempts)
        attempt_ids = {job_id: attempt_id for job_id, attempt_id in made}  # noqa: C416 - dict() of rows is not typed
        for one, row in zip(new.values(), attempts, strict=True):
            number, job_id, at = row["number"], row["job_id"], one.at
            opened[id(one)] = Opened(
                job_id, attempt_ids[job_id], number, number, 0, "running", None, None, None, None, at, at, [], dict(one.labels),
                made=True,
            )  # fmt: skip
        confirmations.enter_first(connection, [(opened[id(one)].attempt_id, one.grant or NOBODY) for one in new.values()])
    return [opened.get(id(one)) or open_attempt(connection, *one) for one in asked]


def state_of(connection: Connection, attempt_id: int) -> tuple[bytes | None, list[StoredLine]]:
    """(snapshot, kept lines) of an attempt: the state from which reading goes on."""
    snapshot = connection.execute(select(t.attempts.c.snapshot).where(t.attempts.c.id == attempt_id)).scalar()
    k = t.kept_lines.c
    rows = connection.execute(
        select(k.source, k.line, k.text, k.raw, k.rule, k.cut).where(k.attempt_id == attempt_id).order_by(k.ord)
    )
    return snapshot, [StoredLine(source, line, raw or text.encode(), rule, cut) for source, line, text, raw, rule, cut in rows]


def silent(connection: Connection, before: float) -> list[tuple[str, int]]:
    """(job, attempt) of running ones that have said nothing since ``before``."""
    rows = connection.execute(
        select(t.jobs.c.name, t.attempts.c.number)
        .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .where(t.attempts.c.state == "running", t.attempts.c.last_seen < before)
        .limit(100)
    )
    return [(name, number) for name, number in rows]


def quiet(connection: Connection, before: float) -> list[tuple[str, int]]:
    """(job, attempt) of those that made steps, have said nothing since ``before``, and have no diagnosis yet."""
    j, a = t.jobs.c, t.attempts.c
    rows = connection.execute(
        select(j.name, a.number)
        .join(t.jobs, j.id == a.job_id)
        .where(a.state == "running", a.last_seen < before, a.step.is_not(None), j.reason.is_(None), j.attempt == a.number)
        .order_by(a.last_seen.desc())
        .limit(100)
    )
    return [(name, number) for name, number in rows]


def running_before(connection: Connection, job: str, number: int) -> list[int]:
    """Earlier attempts of ``job`` that still count as running."""
    rows = connection.execute(
        select(t.attempts.c.number)
        .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .where(t.jobs.c.name == job, t.attempts.c.number < number, t.attempts.c.state == "running")
    )
    return [found for (found,) in rows]


# --- taking in ----------------------------------------------------------------------------------------------------------------


_ATTEMPT = update(t.attempts).where(t.attempts.c.id == bindparam("_attempt"))
_JOB = update(t.jobs).where(t.jobs.c.id == bindparam("_job"), t.jobs.c.attempt <= bindparam("_number"))


def taking_in(flushes: Sequence[Flush]) -> Callable[[Connection], None]:
    """A function for ``Store.write`` that stores all ``flushes``, which are of different attempts.

    It uses few statements for many attempts, because each costs more in the interpreter than in the database.
    """

    def work(connection: Connection) -> None:
        a = t.attempts.c
        lsns = connection.execute(select(a.id, a.lsn).where(a.id.in_([flush.attempt_id for flush in flushes])))
        known = {attempt_id: lsn for attempt_id, lsn in lsns}  # noqa: C416 - dict() of rows is not typed
        there = [flush for flush in flushes if flush.attempt_id in known]  # others were deleted meanwhile
        # The answer to an earlier try may have been lost: then all of it is here already.
        news = [flush for flush in there if known[flush.attempt_id] < flush.lsn]
        for flush in news:
            if flush.anew:
                connection.execute(delete(t.kept_lines).where(t.kept_lines.c.attempt_id == flush.attempt_id))
        _move_on(connection, there, known)
        rows = [(flush.attempt_id, *row) for flush in news for row in flush.rows]
        if rows:
            insert_many(connection, t.kept_lines, ("attempt_id", *KeptRow._fields), rows)
        sources = [{"attempt_id": flush.attempt_id, **source._asdict()} for flush in there for source in flush.sources]
        if sources:
            upsert(connection, t.sources, sources)
        _see_nodes(connection, there)
        diagnoses.store(connection, [flush for flush in there if flush.judged is not None])

    return work


def _move_on(connection: Connection, flushes: Sequence[Flush], known: Mapping[int, int]) -> None:
    """Store how far the attempts and their jobs have come."""
    attempts, jobs = [], []
    for flush in flushes:
        lsn = max(known[flush.attempt_id], flush.lsn)
        attempts.append({"_attempt": flush.attempt_id, "lsn": lsn, "snapshot": flush.snapshot, **flush.figures})
        changes = {"last_seen": flush.figures["last_seen"], "state": flush.figures["state"]}
        if flush.labels is not None:
            changes |= {**_named(flush.labels), "labels": flush.labels}
        jobs.append({"_job": flush.job_id, "_number": flush.number, **changes})
    update_many(connection, _ATTEMPT, attempts)
    update_many(connection, _JOB, jobs)


def _named(labels: dict[str, str]) -> dict[str, Any]:
    """The labels that have columns."""
    gpus = labels.get("gpus", "")
    return {
        "cluster": labels.get("cluster"),
        "user": labels.get("user"),
        "framework": labels.get("framework"),
        "gpus": int(gpus) if gpus.isascii() and gpus.isdigit() and len(gpus) < 8 else None,
    }


def _see_nodes(connection: Connection, flushes: Sequence[Flush]) -> None:
    seen: dict[str, float] = {}
    for flush in flushes:
        for source in flush.sources:
            if source.node:
                seen[source.node] = max(seen.get(source.node, 0.0), source.last_seen)
    if seen:
        upsert(
            connection,
            t.nodes,
            [
                {"name": name, "state": "ok", "first_seen": at, "last_seen": at, "failures": 0}
                for name, at in sorted(seen.items())
            ],
            changes=("last_seen",),
        )
