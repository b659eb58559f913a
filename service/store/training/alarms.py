"""What went wrong while a training went on: it stood still, its machine failed, a checkpoint's score fell.

An alarm is entered when it is noticed, with the step that the training had reached. The checkpoint before it is doubted from
then on, and the training hears of it in the answer to its next report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from diagnose.decision.checkpoints import Alarm
from diagnose.decision.history import NodeFinding
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Report
from service.store import tables as t
from service.store.upsert import upsert

_MOST_TOLD = 20
_LONGEST = 500


def told(connection: Connection, attempt_id: int) -> list[dict[str, Any]]:
    """The latest of an attempt, as its training hears of them."""
    x = t.alarms.c
    rows = connection.execute(
        select(x.kind, x.step, x.said, x.path).where(x.attempt_id == attempt_id).order_by(x.at.desc()).limit(_MOST_TOLD)
    )
    return [{"step": row.step, "kind": row.kind, "why": row.said, "path": row.path} for row in rows]


def known(connection: Connection, job_id: int) -> list[Alarm]:
    """Of all attempts of a job; not those about scores, which are judged anew each time."""
    x, a = t.alarms.c, t.attempts.c
    rows = connection.execute(
        select(a.number, x.step, x.kind, x.said)
        .join(t.attempts, a.id == x.attempt_id)
        .where(a.job_id == job_id, x.kind != "score")
        .order_by(x.at)
    )
    return [Alarm(*row) for row in rows]


def kind_of(report: Report) -> str | None:
    """What kind of alarm a diagnosis is. A loss that goes wrong is told as the roll-back that follows from it."""
    reason = report.diagnosis.reason
    if reason == "hang":
        return "hang"
    return "hardware" if shipped_taxonomy().has(reason, "machine") else None


def of_diagnosis(connection: Connection, attempt_id: int, report: Report, at: float) -> None:
    """A new diagnosis: it hangs, or its machine fails."""
    kind = kind_of(report)
    if kind is None:
        return
    step = report.diagnosis.step
    reached = int(step) if step is not None else step_at(connection, attempt_id, at)
    _enter(connection, [_row(attempt_id, kind, report.diagnosis.reason, at, reached, report.diagnosis.summary)])


def of_nodes(connection: Connection, findings: Sequence[tuple[NodeFinding, str | None]]) -> None:
    """What others found of nodes, for the attempts that run there."""
    s, a = t.sources.c, t.attempts.c
    for one, said in findings:
        query = select(a.id).where(
            a.state == "running",
            a.started_at <= one.at,
            a.id.in_(select(s.attempt_id).where(s.node == one.node)),
        )
        words = f"{one.node}: {one.name}{f': {said}' if said else ''} (told by {one.source})"
        rows = [
            _row(key, "hardware", f"{one.node}/{one.source}/{one.name}", one.at, step_at(connection, key, one.at), words)
            for key in connection.execute(query).scalars()
        ]
        _enter(connection, rows)


def of_score(connection: Connection, job: str, step: int, path: str | None, why: str | None, at: float) -> None:
    """A checkpoint's score fell, or does no longer (``why`` is None). Who runs now hears of it."""
    x, a = t.alarms.c, t.attempts.c
    latest = connection.execute(
        select(a.id).join(t.jobs, t.jobs.c.id == a.job_id).where(t.jobs.c.name == job).order_by(a.number.desc()).limit(1)
    ).scalar()
    if latest is None:
        return
    name = path or str(step)
    same = (x.attempt_id == latest) & (x.kind == "score") & (x.name == name)
    connection.execute(delete(t.alarms).where(same))
    if why is not None:
        _enter(connection, [{**_row(latest, "score", name, at, step, why), "path": path}])


def step_at(connection: Connection, attempt_id: int, at: float) -> int:
    """The step that an attempt had reached: its last one, or if that came later, the one after the checkpoint before."""
    p, c, a = t.progress.c, t.checkpoints.c, t.attempts.c
    last = connection.execute(select(p.step, p.at).where(p.attempt_id == attempt_id)).first()
    if last is None:
        reached = connection.execute(select(a.step).where(a.id == attempt_id)).scalar()
        return int(reached or 0)
    if last.at <= at:
        return int(last.step)
    saved = select(c.step).where(c.attempt_id == attempt_id, c.at <= at).order_by(c.step.desc()).limit(1)
    before = connection.execute(saved).scalar()
    return min(int(before) + 1, int(last.step)) if before is not None else 0


def _row(attempt_id: int, kind: str, name: str, at: float, step: int, said: str) -> dict[str, Any]:
    words = {"said": said[:_LONGEST], "path": None}
    return {"attempt_id": attempt_id, "kind": kind, "name": name, "at": at, "step": step, **words}


def _enter(connection: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """One that is told again stays as it was: the training has gone on since."""
    given = list(rows)
    if given:
        upsert(connection, t.alarms, given, changes=("said",))
