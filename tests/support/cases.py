"""What decisions are asked about, made by hand: reports, histories, clusters, policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diagnose.decision.history import Cluster, Failure, History, NodeState, PastAction, PastAttempt
from diagnose.decision.policy import Policy
from diagnose.decision.policy_file import over_shipped, shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import (
    SCHEMA,
    Action,
    CompressionFigures,
    Diagnosis,
    EvidenceLine,
    JobIdentity,
    Report,
    SavedCheckpoint,
    Steps,
    Suspects,
)

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = tuple(f"gpu-{n:03}" for n in range(100))


def xid(number: int, node: str) -> EvidenceLine:
    """A line of the driver, in the kernel log of a node."""
    text = f"Mar 04 07:09:47 {node} kernel: [81.2] NVRM: Xid (PCI:0000:8a:00): {number}, pid=4105, name=python, x"
    return EvidenceLine(source=f"{node}.log", line=7, text=text, role="root_cause", node=node)


def report(
    reason: str = "hang",
    *,
    job: str = "job",
    attempt: int = 1,
    nodes: tuple[str, ...] = (),
    root: EvidenceLine | None = None,
    by: Any = "rule",
    confidence: float = 0.97,
    group: str | None = "g1",
    phase: str | None = "training",
    step: float | None = None,
    affected: tuple[float, float | None] | None = None,
    checkpoints: tuple[int, ...] = (),
    outcome: Any = "failed",
    advised: str | None = None,
) -> Report:
    """A report as the diagnosis of one log makes it."""
    remedy = shipped_policy().remedy(reason)
    kind = advised or remedy.kind
    if root is None and reason == "preempted":
        root = EvidenceLine(source="log", line=9, text="*** JOB 8812 ON gpu-1 CANCELLED AT 10:00 DUE TO PREEMPTION ***")
    return Report(
        schema=SCHEMA,
        job=JobIdentity(id=job, sources=["log"], attempt=attempt),
        outcome=outcome,
        diagnosis=Diagnosis(
            category=shipped_taxonomy().category_of[reason],
            reason=reason,
            confidence=confidence,
            by=by,
            root_cause=root,
            suspects=Suspects(nodes=list(nodes)),
            culprits=list(nodes) if remedy.kind == "isolate_and_restart" else [],
            group=group,
            phase=phase,
            step=step,
            affected=Steps(first=affected[0], last=affected[1]) if affected else None,
        ),
        action=Action(kind=kind, nodes=list(nodes) if kind == "isolate_and_restart" else [], why=remedy.why),
        compression=CompressionFigures(lines_in=1, bytes_in=1, lines_kept=1, bytes_kept=1, ratio=1.0, dropped_by_kind={}),
        checkpoints=[SavedCheckpoint(step=step) for step in checkpoints],
    )


def failed(
    number: int, reason: str = "hang", *, hours_ago: float = 1.0, steps: tuple[float, float] | None = None, **more: Any
) -> PastAttempt:
    """An attempt before; ``steps``: from where to where it came, in half an hour."""
    ended = NOW - hours_ago * HOUR
    first, last = steps or (None, None)
    fields: dict[str, Any] = {
        "group": "g1",
        "phase": "training" if steps else "start-up",
        "first_step": first,
        "last_step": last,
    }
    return PastAttempt(number, ended - HOUR / 2, ended, reason, **(fields | more))


def elsewhere(jobs: int, reason: str, *, minutes_ago: float = 1.0, suspects: tuple[str, ...] = ()) -> tuple[Failure, ...]:
    """The same failure in other jobs."""
    return tuple(Failure(f"other-{n}", 1, NOW - minutes_ago * 60, reason, suspects=suspects) for n in range(jobs))


def done(
    kind: str, attempt: int, *, state: str = "succeeded", hours_ago: float = 1.0, job: str = "job", **more: Any
) -> PastAction:
    """An action before."""
    key = more.pop("key", f"{job}-{attempt}-{kind}")
    return PastAction(key, job, attempt, kind, state, NOW - hours_ago * HOUR, **more)


def cluster(*isolated: str, count: int = 100, **more: Any) -> Cluster:
    """A cluster of which all nodes but these are well."""
    nodes: dict[str, NodeState] = {node: "isolated" if node in isolated else "ok" for node in NODES[:count]}
    return Cluster(nodes=nodes, **more)


def policy(folder: Path, text: str = "") -> Policy:
    """The shipped policy in mode auto, and what ``text`` says besides."""
    path = folder / "site.yaml"
    path.write_text(text if text.startswith("mode:") else f"mode: auto\n{text}")
    return over_shipped(path)


def ran_on(*nodes: str, **more: Any) -> History:
    """A job that ran on these nodes."""
    return History(nodes=nodes, ended=NOW, **({"workload": "pretraining"} | more))
