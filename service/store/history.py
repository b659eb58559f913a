"""The past that a decision looks at: the job's attempts, failures and actions elsewhere, and the state of the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, bindparam, case, select, true

from diagnose.decision.ending import OF_SLURM, ending_of_slurm
from diagnose.decision.history import Checkpoint, Cluster, Failure, History, Isolation, PastAction, PastAttempt
from diagnose.decision.lost import Lost
from diagnose.decision.policy import HOLD
from diagnose.report import Report
from diagnose.study.runs import Run, State
from service.projects import DEFAULT, parted
from service.store import findings, nodechecks
from service.store import tables as t
from service.store.diagnoses import unpacked
from service.store.training import checkpoints

_ATTEMPTS, _FAILURES, _ACTIONS, _CHECKPOINTS = 50, 2000, 2000, 1000
_SAID = 500
_BACK_S = 31 * 86400.0
"""the policy looks back at most 30 days"""

# Statements of every decision. They are made once: to make one takes longer than to run it.
_ATTEMPT: Final[BindParameter[Any]] = bindparam("attempt")
_REPORT: Final = select(t.diagnoses.c.report).where(t.diagnoses.c.attempt_id == _ATTEMPT)
_OWN: Final = (
    select(
        t.jobs.c.name,
        t.jobs.c.project,
        t.attempts.c.number,
        t.attempts.c.job_id,
        t.attempts.c.started_at,
        t.attempts.c.ended_at,
        t.attempts.c.progress_at,
        t.attempts.c.step,
        t.attempts.c.workload,
        t.attempts.c.end_state,
        t.attempts.c.exit_code,
        t.attempts.c.signal,
        t.jobs.c.labels,
        t.jobs.c.gpus,
        t.jobs.c.user,
    )
    .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
    .where(t.attempts.c.id == _ATTEMPT)
)
_NODES: Final = (
    select(t.sources.c.node)
    .where(t.sources.c.attempt_id == _ATTEMPT, t.sources.c.node.is_not(None))
    .distinct()
    .order_by(t.sources.c.node)
)
_EARLIER: Final = (
    select(
        t.attempts.c.id,
        t.attempts.c.number,
        t.attempts.c.started_at,
        t.attempts.c.ended_at,
        t.attempts.c.progress_at,
        t.attempts.c.step,
        t.diagnoses.c.outcome,
        t.diagnoses.c.reason,
        t.diagnoses.c.by,
        t.diagnoses.c.report,
    )
    .outerjoin(t.diagnoses, t.diagnoses.c.attempt_id == t.attempts.c.id)
    .where(t.attempts.c.job_id == bindparam("job"), t.attempts.c.number < bindparam("before"))
    .order_by(t.attempts.c.number.desc())
    .limit(_ATTEMPTS)
)


def report_of(connection: Connection, attempt_id: int) -> Report | None:
    """The stored report of an attempt."""
    found = connection.execute(_REPORT, {"attempt": attempt_id}).scalar()
    return Report.model_validate(unpacked(found)) if found is not None else None


class Lately:
    """What failed and what was done anywhere lately, for several decisions of one transaction: it is read once.

    ``confirmed``: an earlier failure only speaks against a node if the scheduler said that the job had run there.
    """

    def __init__(self, connection: Connection, now: float, *, confirmed: bool = False) -> None:
        self.connection = connection
        self._now, self._since, self._confirmed = now, now - _BACK_S, confirmed
        self._failed: dict[str, tuple[Failure, ...]] = {}
        """project -> the failures, as that project may see them"""
        self._done: dict[int, PastAction] | None = None
        self._nodes: dict[tuple[Sequence[str] | None, int | None], Cluster] = {}

    def decided(self, actions: Sequence[int]) -> None:
        """These actions were entered or changed: the next decision must know them."""
        if self._done is not None:
            self._done |= _actions(self.connection, self._since, actions)

    def anywhere(self) -> History:
        """The history of no job in particular."""
        return History(failures=self._failures(DEFAULT), actions=self._actions())

    def of(self, attempt_id: int) -> History:
        """The history of the job of ``attempt_id``."""
        own = self.connection.execute(_OWN, {"attempt": attempt_id}).one()
        return History(
            labels=own.labels,
            gpus=own.gpus,
            nodes=_nodes(self.connection, attempt_id),
            started=own.started_at,
            ended=own.ended_at,
            progress_s=_moved_s(own),
            attempts=_attempts(self.connection, own.job_id, own.number),
            name=parted(own.name)[1],
            failures=self._failures(own.project),
            actions=self._actions(),
            checkpoints=_checkpoints(self.connection, own.job_id),
            user=None if self._confirmed else own.user,
            workload=own.workload,
            ending=ending_of_slurm(own.end_state, exit_code=f"{own.exit_code or 0}:{own.signal or 0}")
            if own.end_state is not None
            else None,
        )

    def cluster(self, names: tuple[str, ...] | None, size: int | None) -> Cluster:
        """The nodes, see ``cluster``. To decide changes none of them: that is for executors."""
        if (names, size) not in self._nodes:
            self._nodes[names, size] = cluster(self.connection, self._now, names, size)
        return self._nodes[names, size]

    def _failures(self, project: str) -> tuple[Failure, ...]:
        if project not in self._failed:
            self._failed[project] = _failures(self.connection, self._since, self._confirmed, project)
        return self._failed[project]

    def _actions(self) -> tuple[PastAction, ...]:
        if self._done is None:
            self._done = _actions(self.connection, self._since)
        return tuple(self._done.values())


def attempts_before(connection: Connection, attempt_id: int) -> tuple[PastAttempt, ...]:
    """The attempts of the same job before this one, oldest first."""
    a = t.attempts.c
    own = connection.execute(select(a.job_id, a.number).where(a.id == attempt_id)).one()
    return _attempts(connection, own.job_id, own.number)


def cluster(connection: Connection, now: float, names: Sequence[str] | None = None, size: int | None = None) -> Cluster:
    """The nodes: which were taken out and given back, and what node checks said.

    ``names``: all nodes, as the scheduler lists them; None: those that were mentioned. ``size``: how many there are, if that is
    known from elsewhere; 0 if nobody knows.
    """
    n, x = t.nodes.c, t.isolations.c
    heard = {row.name: row.state for row in connection.execute(select(n.name, n.state))}
    states = heard
    if names is not None:
        out = {name: state for name, state in heard.items() if state in ("isolated", "gone")}
        states, size = {**{name: heard.get(name, "ok") for name in names}, **out}, len(names)
    rows = connection.execute(
        select(x.node, x.at, x.by, x.key, x.released).where((x.at > now - _BACK_S) | x.released.is_(None)).order_by(x.at)
    )
    isolations = tuple(
        # If the policy alone took it out, no person has to agree to its return.
        Isolation(row.node, row.at, "decision" if row.by == "policy" else row.by, row.key, row.released)
        for row in rows
    )
    return Cluster(
        nodes=states,
        size=size,
        isolations=isolations,
        checks=nodechecks.since(connection, now - _BACK_S),
        findings=findings.since(connection, now - _BACK_S),
    )


def _nodes(connection: Connection, attempt_id: int) -> tuple[str, ...]:
    return tuple(connection.execute(_NODES, {"attempt": attempt_id}).scalars())


def _moved_s(row: Any) -> float | None:
    """How long the attempt made steps."""
    return max(0.0, row.progress_at - row.started_at) if row.step is not None and row.progress_at is not None else None


def _attempts(connection: Connection, job_id: int, before: int) -> tuple[PastAttempt, ...]:
    n = t.occurrence_nodes.c
    rows = connection.execute(_EARLIER, {"job": job_id, "before": before}).all()
    if not rows:
        return ()
    suspects: dict[int, list[str]] = {}
    for attempt, node in connection.execute(
        select(n.attempt_id, n.node).where(n.attempt_id.in_([row.id for row in rows])).order_by(n.node)
    ):
        suspects.setdefault(attempt, []).append(node)
    found = []
    for row in reversed(rows):
        failed = row.outcome == "failed"
        diagnosis = unpacked(row.report)["diagnosis"] if row.report is not None and failed else {}
        found.append(
            PastAttempt(
                row.number,
                row.started_at,
                row.ended_at,
                row.reason if failed else None,
                diagnosis.get("group"),
                diagnosis.get("phase"),
                row.by or "rule",
                _nodes(connection, row.id),
                tuple(suspects.get(row.id, ())),
                None,
                row.step,
                _moved_s(row),
            )
        )
    return tuple(found)


def _failures(connection: Connection, since: float, confirmed: bool, project: str) -> tuple[Failure, ...]:
    """``project``: jobs of others have no name, for what is decided is told."""
    o, n, x = t.occurrences.c, t.occurrence_nodes.c, t.confirmations.c
    rows = connection.execute(
        select(o.attempt_id, o.job_id, t.jobs.c.name, t.jobs.c.project, t.attempts.c.number, t.attempts.c.workload, o.at,
               o.reason, o.user, t.groups.c.fingerprint, t.diagnoses.c.by)
        .join(t.jobs, t.jobs.c.id == o.job_id)
        .join(t.attempts, t.attempts.c.id == o.attempt_id)
        .join(t.groups, t.groups.c.id == o.group_id)
        .join(t.diagnoses, t.diagnoses.c.attempt_id == o.attempt_id)
        .where(o.at > since)
        .order_by(o.at.desc())
        .limit(_FAILURES)
    ).all()  # fmt: skip
    suspects: dict[int, dict[str, bool]] = {}
    oldest = rows[-1].at if rows else since
    for attempt, node, culprit in connection.execute(select(n.attempt_id, n.node, n.culprit).where(n.at >= oldest)):
        suspects.setdefault(attempt, {})[node] = culprit
    spoken = select(x.attempt_id, x.accused, x.subject, x.owner).where(x.at >= oldest, x.confirmed)
    known = connection.execute(spoken) if confirmed else ()
    of_whom = {attempt: (set(accused), subject, owner) for attempt, accused, subject, owner in known}
    found = []
    for row in reversed(rows):
        accused, subject, owner = of_whom.get(row.attempt_id, (set(), None, None))
        pointed = suspects.get(row.attempt_id, {})
        named = sorted(node for node in pointed if not confirmed or node in accused)
        found.append(
            Failure(
                row.name if row.project == project else f"job {row.job_id} of another project",
                row.number,
                row.at,
                row.reason,
                row.fingerprint,
                row.by,
                tuple(named),
                subject,
                tuple(node for node in named if pointed[node]),
                owner if confirmed else row.user,
                row.workload,
            )
        )
    return tuple(found)


def _actions(connection: Connection, since: float, some: Sequence[int] | None = None) -> dict[int, PastAction]:
    """The last actions by their ids, the oldest first. ``some``: no others than these."""
    x = t.actions.c
    rows = connection.execute(
        select(x.id, t.jobs.c.name, t.attempts.c.number, x.key, x.kind, x.state, x.created, x.changed, x.nodes, x.reason,
               x.incident, x.restart_from, x.skip_batches, x.fence, x.owner, x.subject, x.decided_by,
               case((x.kind == HOLD, x.result)).label("said"))
        .outerjoin(t.attempts, t.attempts.c.id == x.attempt_id)  # an action that is only about a node has no job
        .outerjoin(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
        .where(x.created > since, true() if some is None else x.id.in_(some))
        .order_by(x.created.desc(), x.id.desc())
        .limit(_ACTIONS)
    )  # fmt: skip
    return {
        row.id: PastAction(
            key=row.key,
            job=row.name or "",
            attempt=row.number or 0,
            kind=row.kind,
            state="withdrawn" if row.state == "rejected" and row.decided_by == "decision" else row.state,
            at=row.created,
            nodes=tuple(row.nodes),
            ended=row.changed if row.state in ("succeeded", "failed", "expired", "rejected") else None,
            reason=row.reason,
            incident=row.incident,
            restart_step=(row.restart_from or {}).get("step"),
            skip=tuple(row.skip_batches) if row.skip_batches else None,
            taken=row.fence > 0,
            owner=row.owner,
            subject=row.subject,
            said=((row.said or {}).get("said") or "")[:_SAID] or None,
        )
        for row in reversed(rows.all())
    }


def _checkpoints(connection: Connection, job_id: int) -> tuple[Checkpoint, ...]:
    """Those that are not bad, the lowest step first."""
    usable = [one for one in checkpoints.known(connection, job_id) if one.healthy is not False]
    newest = sorted(usable, key=lambda one: one.step)[-_CHECKPOINTS:]
    return tuple(Checkpoint(one.step, one.path, one.at, told_by="api", healthy=one.healthy, doubt=one.doubt) for one in newest)


# --- all of it, for a study


def runs(connection: Connection) -> list[Run]:
    """Every attempt, the oldest first."""
    j, a, d, o, s = t.jobs.c, t.attempts.c, t.diagnoses.c, t.occurrences.c, t.sources.c
    nodes: dict[int, list[str]] = defaultdict(list)
    for attempt, node in connection.execute(select(s.attempt_id, s.node).where(s.node.is_not(None)).distinct()):
        nodes[attempt].append(node)
    query = (
        select(
            a.id, j.name, j.user, j.cluster, j.gpus, a.state, a.started_at, a.ended_at, a.last_seen, a.exit_code, a.end_state,
            d.outcome, d.reason, o.gpu_seconds, o.still, o.back, o.whole,
        )
        .join(t.jobs, j.id == a.job_id)
        .outerjoin(t.diagnoses, d.attempt_id == a.id)
        .outerjoin(t.occurrences, o.attempt_id == a.id)
        .order_by(a.started_at, a.id)
    )  # fmt: skip
    return [
        Run(
            row.name,
            _ending(row.state, row.outcome, row.end_state),
            name=row.name,
            user=row.user or "",
            partition=row.cluster or "",
            raw=row.name,
            started=row.started_at,
            ended=(row.ended_at or row.last_seen) if row.state == "ended" else None,
            elapsed_s=max(0.0, (row.ended_at or row.last_seen) - row.started_at),
            gpus=row.gpus or 0,
            nodes=tuple(sorted(nodes[row.id])),
            exit_code="" if row.exit_code is None else str(row.exit_code),
            reason=row.reason if row.outcome == "failed" and row.reason != "unknown" else None,
            by_log=row.outcome == "failed" and row.reason not in (None, "unknown"),
            lost=_price(row.gpus, row.gpu_seconds, row.still, row.back, row.whole),
        )
        for row in connection.execute(query)
    ]


def _price(gpus: int | None, total: float | None, still: float, back: float, whole: bool) -> Lost | None:
    return Lost((total - still - back) / gpus, still / gpus, back / gpus, whole) if gpus and total is not None else None


def _ending(state: str, outcome: str, said: str | None) -> State:
    if state != "ended":
        return "running"
    kind = OF_SLURM.get(said or "")
    if kind is not None:
        return kind
    return "failed" if outcome == "failed" else "completed"
