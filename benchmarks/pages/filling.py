"""A database as the service writes it, with so many jobs, failures and kept lines, filled as quickly as SQLite takes rows."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Table, insert

from diagnose.packed import packed
from diagnose.report import Action, CompressionFigures, Diagnosis, EvidenceLine, JobIdentity, Report, Suspects
from service.store import Store
from service.store import tables as t

REASONS: Final = (
    ("infrastructure", "ecc_error"),
    ("infrastructure", "nccl_timeout"),
    ("framework", "out_of_memory"),
    ("script", "key_error"),
    ("script", "import_error"),
    ("unknown", "unknown"),
)
_WEEK: Final = 7 * 86400.0
_RUNNING: Final = 60
_STEPS: Final = 200
_AT_ONCE: Final = 5000
_INTO: Final = (
    t.jobs,
    t.attempts,
    t.sources,
    t.diagnoses,
    t.occurrences,
    t.occurrence_nodes,
    t.series,
    t.actions,
    t.decisions,
    t.checkpoints,
    t.tasks,
    t.corrections,
)
"""tables of jobs, in the order in which rows can go into them"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much to write."""

    jobs: int
    failures: int
    lines: int
    groups: int = 400
    nodes: int = 1000
    ranks: int = 512
    """of the last job, which has a hundredth of all lines"""

    @property
    def last(self) -> str:
        return f"job-{self.jobs}"


@dataclass(slots=True)
class _Filling:
    """What the rows of jobs have in common."""

    size: Size
    now: float
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, table: Table, *rows: dict[str, Any]) -> None:
        self.rows.setdefault(table.name, []).extend(rows)

    def written(self, connection: Connection) -> None:
        for table in _INTO:
            if self.rows.get(table.name):
                connection.execute(insert(table), self.rows[table.name])
        self.rows.clear()


def fill(store: Store, size: Size, now: float) -> None:
    """Write the rows. Half of all failures are of one group, and the last jobs are those that failed."""
    filling = _Filling(size, now)
    known = [_group(number, now) for number in range(size.groups)]
    names = [f"gpu-{number:04d}" for number in range(size.nodes)]
    with store.engine.begin() as connection:
        connection.execute(insert(t.groups), known)
        connection.execute(insert(t.nodes), [_node(name, now, filling.dice) for name in names])
        checks = [_check(name, now - 86400 * day, size.nodes) for name in names for day in range(5)]
        connection.execute(insert(t.node_checks), checks)
    for start in range(1, size.jobs + 1, _AT_ONCE):
        with store.engine.begin() as connection:
            for number in range(start, min(start + _AT_ONCE, size.jobs + 1)):
                _add_job(filling, number, known, names)
            filling.written(connection)
    with store.engine.begin() as connection:
        for one in known:
            connection.execute(t.groups.update().where(t.groups.c.id == one["id"]).values(count=one["count"]))
    _write_lines(store, size)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("analyze")


def _add_job(filling: _Filling, number: int, known: list[dict[str, Any]], names: list[str]) -> None:
    size, now, dice = filling.size, filling.now, filling.dice
    each = _lines_of(size, number)
    failed = number > size.jobs - size.failures
    group = known[0 if dice.random() < 0.5 else dice.randrange(len(known))] if failed else None
    running = not failed and number <= _RUNNING
    # Running jobs have just said something: else the service would end them as silent during the measurement.
    at = now - dice.random() * (60 if running else 4 * _WEEK)
    filling.add(t.jobs, _job(number, at, group, running))
    filling.add(t.attempts, _attempt(number, at, failed, running, each))
    ranks = size.ranks if number == size.jobs else 1
    filling.add(t.sources, *(_source(number, rank, at, dice.choice(names)) for rank in range(ranks)))
    filling.add(t.series, _losses(number))
    if group is None:
        return
    group["count"] += 1
    node = dice.choice(names)
    filling.add(t.diagnoses, _diagnosis(number, at, group, node))
    filling.add(t.occurrences, _occurrence(number, at, group))
    filling.add(t.occurrence_nodes, {"attempt_id": number, "node": node, "group_id": group["id"], "at": at})
    filling.add(t.actions, _action(number, at, group, node))
    filling.add(t.decisions, _decision(number, at))
    filling.add(
        t.checkpoints,
        *(
            {"attempt_id": number, "step": step, "path": f"/ckpt/{step}", "healthy": None, "at": at}
            for step in range(50, _STEPS, 50)
        ),
    )
    if number % 5 == 0:
        filling.add(t.tasks, _question(number, at, group))
    if number % 50 == 0:
        filling.add(t.corrections, _correction(number, at, group))


def _lines_of(size: Size, number: int) -> int:
    """The last job has a hundredth of all lines, the others share the rest."""
    most = size.lines // 100
    return most if number == size.jobs else (size.lines - most) // max(1, size.jobs - 1)


def _write_lines(store: Store, size: Size) -> None:
    """Kept lines, past SQLAlchemy: ten million of them are most of the work."""
    columns = ("attempt_id", "ord", "source", "line", "text", "rule", "cut", "rank", "node")
    words = f"insert into kept_lines ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"
    path = store.engine.url.database
    assert path is not None
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(words, _all_lines(size))
    connection.close()


def _all_lines(size: Size) -> Iterator[tuple[Any, ...]]:
    for number in range(1, size.jobs + 1):
        last = number == size.jobs
        for order in range(_lines_of(size, number)):
            rank = order % (size.ranks if last else 8)
            text = f"[rank{rank}]: RuntimeError: something about {order} that is as long as lines of logs mostly are"
            rule = "py-runtime-error" if order % 9 == 0 else None
            yield number, order, rank if last else 0, order * 20 + 1, text, rule, 0, rank, f"gpu-{rank // 8:04d}"


def _group(number: int, now: float) -> dict[str, Any]:
    return {
        "id": number + 1,
        "fingerprint": f"g{number}",
        "category": REASONS[number % 6][0],
        "reason": REASONS[number % 6][1],
        "title": f"What failed in the way of group {number}",
        "root_text": f"RuntimeError: CUDA error: case {number}",
        "mitigation": "Look.",
        "first_seen": now - 90 * 86400.0,
        "last_seen": now - number,
        "count": 0,
        "gpu_seconds_lost": 3600.0 * number,
        "state": "open",
        "regressed": False,
    }


def _node(name: str, now: float, dice: random.Random) -> dict[str, Any]:
    state = "suspect" if dice.random() < 0.02 else "ok"
    seen = {"first_seen": now, "last_seen": now, "last_failure": now}
    return {"name": name, "state": state, **seen, "failures": dice.randrange(9)}


def _check(node: str, at: float, tested: int) -> dict[str, Any]:
    return {"node": node, "at": at, "result": "good", "why": None, "who": "kim", "tested": tested, "rounds": 1}


def _source(number: int, rank: int, at: float, node: str) -> dict[str, Any]:
    name = {"number": rank, "name": f"rank{rank}.log", "rank": rank, "node": node}
    return {"attempt_id": number, **name, "received": 1, "last_seen": at, "step": float(_STEPS)}


_LOSSES: Final = packed(
    json.dumps([[float(step), 5 / (step + 1), 4 / (step + 1), 6 / (step + 1)] for step in range(_STEPS)]).encode()
)


def _losses(number: int) -> dict[str, Any]:
    figures = {"count": _STEPS, "last": 1.0, "at_step": float(_STEPS), "least": 0.0, "most": 5.0}
    return {"attempt_id": number, "name": "loss", **figures, "points": _LOSSES}


def _question(number: int, at: float, group: dict[str, Any]) -> dict[str, Any]:
    rules = [group["category"], None, group["reason"], 0.6]
    result = {"asked": True, "model": "qwen", "rules": rules, "said": group["reason"], "tokens": 2000, "replaced": False}
    return {
        "kind": "ask",
        "attempt_id": number,
        "ref": "",
        "detail": {},
        "state": "done",
        "created": at,
        "changed": at,
        "result": result,
    }


def _correction(number: int, at: float, group: dict[str, Any]) -> dict[str, Any]:
    was = {"category": group["category"], "reason": group["reason"], "line": 41}
    right = {"category": "script", "reason": "key_error"}
    return {"attempt_id": number, "at": at, "who": "kim", **right, "was": was}


def _job(number: int, at: float, group: dict[str, Any] | None, running: bool) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"job-{number}",
        "cluster": "alps" if number % 2 else "delta",
        "user": f"user{number % 40}",
        "gpus": 64,
        "labels": {"team": f"team{number % 12}", "image": f"image:{number % 30}"},
        "attempt": 1,
        "state": "running" if running else "ended",
        "outcome": "failed" if group else "running" if running else "healthy",
        "category": group["category"] if group else None,
        "reason": group["reason"] if group else None,
        "group_id": group["id"] if group else None,
        "first_seen": at,
        "last_seen": at + 60,
    }


def _attempt(number: int, at: float, failed: bool, running: bool, lines: int) -> dict[str, Any]:
    return {
        "id": number,
        "job_id": number,
        "number": 1,
        "state": "running" if running else "ended",
        "outcome": "failed" if failed else "running" if running else "healthy",
        "started_at": at - 3600,
        "last_seen": at,
        "ended_at": None if running else at,
        "lsn": 0,
        "lines_in": lines * 20,
        "bytes_in": lines * 2000,
        "lines_kept": lines,
        "bytes_kept": lines * 100,
        "dropped": {"metric": lines * 10, "init": lines * 9},
        "step": 200.0,
        "loss": 2.0,
    }


def _diagnosis(number: int, at: float, group: dict[str, Any], node: str) -> dict[str, Any]:
    root = EvidenceLine(source="rank0.log", line=41, text="[rank2]: RuntimeError: something about 2", role="root_cause", rank=2)
    diagnosis = Diagnosis(
        category=group["category"],
        reason=group["reason"],
        confidence=0.9,
        by="rule",
        rule="x",
        root_cause=root,
        evidence=[root] * 12,
        suspects=Suspects(nodes=[node], ranks=[2]),
        summary="It failed.",
        mitigation="Look.",
        group=group["fingerprint"],
        step=200.0,
    )
    report = Report(
        schema="diagnose.report/1",
        job=JobIdentity(id=f"job-{number}", sources=["rank0.log"]),
        outcome="failed",
        diagnosis=diagnosis,
        action=Action(kind="restart", why="It may pass."),
        compression=CompressionFigures(lines_in=1, bytes_in=1, lines_kept=1, bytes_kept=1, ratio=1.0, dropped_by_kind={}),
    )
    return {
        "attempt_id": number,
        "made_at": at,
        "final": True,
        "outcome": "failed",
        "category": group["category"],
        "reason": group["reason"],
        "confidence": 0.9,
        "by": "rule",
        "rule": "x",
        "summary": "It failed.",
        "group_id": group["id"],
        "report": packed(report.as_json().encode()),
    }


def _occurrence(number: int, at: float, group: dict[str, Any]) -> dict[str, Any]:
    return {
        "attempt_id": number,
        "group_id": group["id"],
        "job_id": number,
        "at": at,
        "category": group["category"],
        "reason": group["reason"],
        "user": f"user{number % 40}",
        "cluster": "alps" if number % 2 else "delta",
        "gpu_seconds": 230_400.0,
    }


def _action(number: int, at: float, group: dict[str, Any], node: str) -> dict[str, Any]:
    return {
        "key": f"k{number}",
        "attempt_id": number,
        "group_id": group["id"],
        "kind": "restart",
        "nodes": [node],
        "why": "It may pass.",
        "state": "proposed" if number % 50 == 0 else "succeeded",
        "mode": "approve",
        "fence": 1,
        "created": at,
        "changed": at,
        "not_before": 0.0,
        "claims": 0,
        "late": False,
    }


def _decision(number: int, at: float) -> dict[str, Any]:
    """A decision for each failure: else the service would decide about all of them during the measurement."""
    action: dict[str, Any] = {"kind": "restart", "nodes": [], "why": "It may pass.", "restart_from": None, "skip_batches": None}
    evidence: dict[str, Any] = {
        "diagnosis": None,
        "root_cause": None,
        "signals": [],
        "incident": None,
        "isolated": None,
        "nodes": 1000,
    }
    decision = {"action": action, "mode": "approve", "reasons": [], "limits": [], "evidence": evidence}
    return {"attempt_id": number, "about": at, "made_at": at, "decision": decision}
