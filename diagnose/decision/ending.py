"""The scheduler's word on how an attempt ended, joined with what its log says. The scheduler knows that; the log knows why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Action, Diagnosis, Report

Kind = Literal["completed", "failed", "cancelled", "time_limit", "preempted", "node_failure", "out_of_memory"]

OF_SLURM: Final[dict[str, Kind]] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "OUT_OF_MEMORY": "out_of_memory",
}
"""https://slurm.schedmd.com/job_state_codes.html"""
_REASONS: Final[dict[Kind, str]] = {
    "cancelled": "preempted",
    "time_limit": "preempted",
    "preempted": "preempted",
    "node_failure": "node_failure",
    "out_of_memory": "host_out_of_memory",
}
_SUMMARIES: Final[dict[Kind, str]] = {
    "cancelled": "Somebody cancelled the job.",
    "time_limit": "The job reached its time limit.",
    "preempted": "The scheduler preempted the job.",
    "node_failure": "A node of the job failed.",
    "out_of_memory": "The job used more memory than it was given.",
}
_CONFIDENCE: Final = 0.99
_TIME_OVER: Final = re.compile(
    r"(?i)\btime limit|\bwall ?(?:clock ?)?time\b|RUNLIMIT|\bh_rt\b|type=timeout|allocation expired"
    r"|(?:Deadline|MaxRuntime)Exceeded|=TIMEOUT\b|=DEADLINE\b|: TIMEOUT\b"
)
_MADE_ROOM: Final = re.compile(
    r"(?i)preempt|evict|requeu|reclaim|maintenance|\bspot\b|drain|reboot|node shutdown|disrupt|scale ?down|capacity|TERM_RC"
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Kind
    said: str
    """in the scheduler's words, for people"""


def ending_of_slurm(state: str, reason: str = "", exit_code: str = "") -> Ending | None:
    """None if the job is not over, or the state is not known. ``exit_code``: as Slurm writes it, such as 3:0 or 0:9."""
    kind = OF_SLURM.get(state)
    code, _, signal = exit_code.partition(":")
    words = [reason if reason != "None" else "", f"exit code {code}" if code not in ("", "0") else ""]
    words.append(f"signal {signal}" if signal not in ("", "0") else "")
    told = f" ({', '.join(filter(None, words))})" if any(words) else ""
    return Ending(kind, f"Slurm says {state}{told}") if kind is not None else None


def ending_of_log(report: Report) -> Ending | None:
    """How it ended by its log alone, where no scheduler was asked: only that its time was over is believed."""
    root = report.diagnosis.root_cause
    if not _was_stopped(report) or root is None or report.diagnosis.by == "agent" or not _TIME_OVER.search(root.text):
        return None
    return Ending("time_limit", "Its log says that its time was over")


def stopped_by_somebody(report: Report) -> bool:
    """Whether it was told to stop, and its log does not say that this was to make room, or for the machine's sake: it may have
    been a person.
    """
    root = report.diagnosis.root_cause
    told = [root.text if root is not None else "", *(line.text for line in report.diagnosis.evidence)]
    return _was_stopped(report) and not any(_MADE_ROOM.search(text) for text in told)


def _was_stopped(report: Report) -> bool:
    return report.outcome == "failed" and shipped_taxonomy().has(report.diagnosis.reason, "stop")


def joined(report: Report, ending: Ending | None) -> Report:
    """The report, with the reason that the scheduler gives where the log has none or only tells what followed."""
    if ending is None or (reason := _REASONS.get(ending.kind)) is None or not _gives_way(report, ending.kind, reason):
        return report
    before = report.diagnosis
    diagnosis = Diagnosis(
        category=shipped_taxonomy().category_of[reason],
        reason=reason,
        confidence=_CONFIDENCE,
        by="detector",
        summary=f"{_SUMMARIES[ending.kind]} {ending.said}.",
        root_cause=before.root_cause if before.reason == reason else None,
        evidence=before.evidence,
        group=f"scheduler-{ending.kind}",
        phase=before.phase,
        step=before.step,
        others=before.others,
        recovered=before.recovered,
        notes=before.notes,
    )
    remedy = shipped_policy().remedy(reason)
    action = Action(why=ending.said) if ending.kind == "cancelled" else Action(kind=remedy.kind, why=remedy.why)
    return report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis, "action": action})


def _gives_way(report: Report, kind: Kind, reason: str) -> bool:
    """Whether what the log says follows from how the job ended. A hang until the time limit and a bug before it do not."""
    said, taxonomy = report.diagnosis.reason, shipped_taxonomy()
    if report.outcome != "failed" or said in ("unknown", "healthy", reason):
        return True
    if kind == "node_failure":
        return taxonomy.has(said, "soft") or taxonomy.has(said, "of_a_stop")
    if kind == "out_of_memory":
        return taxonomy.has(said, "kills") or taxonomy.has(said, "of_a_stop")
    return taxonomy.has(said, "of_a_stop")
