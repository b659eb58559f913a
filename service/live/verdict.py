"""Report of a log -> verdict on the attempt. It adds what no log can say: that the job is silent, and the
scheduler's word on how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from diagnose.decision.ending import joined
from diagnose.decision.policy_file import shipped_policy
from diagnose.diagnosis.detectors.course import duration
from diagnose.memory import remembered
from diagnose.redaction.text import redact
from diagnose.report import Action, Problem, Report
from service.live.stream import End

_WORDS = ("text", "summary", "frame")
_HANG, _PERHAPS = 0.6, 0.45
"""confidence that a silent job hangs; and that one does which prints, or has not made a step yet: a person is asked"""
WITHOUT_A_CAUSE = frozenset({"unknown", "healthy", "hang", "loss_anomaly"})
"""reasons that say of a running job that it stands or goes wrong, or nothing: none of its processes has failed"""
_MOST_TOLD = 20
_DAMAGED = "are missing: they were accepted, and the service's disk damaged them before they were read"


def judged(
    report: Report,
    *,
    attempt: int,
    end: End | None,
    silent_s: float | None = None,
    sure: bool = True,
    missing: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> Report:
    """``report`` with the attempt's number, its silence and the scheduler's word taken into account.

    ``silent_s``: how long it has stood still, if that is too long. ``sure``: it is silent, and made steps before.
    ``missing``: bytes of sources that were accepted and cannot be read.
    """
    changes: dict[str, object] = {"job": report.job.model_copy(update={"attempt": max(attempt, report.job.attempt)})}
    if missing:
        report = _lacking(report, missing)
    if silent_s is not None:
        changes |= _standing(report, silent_s, sure=sure, over=end is not None)
    return joined(report.model_copy(update=changes), end.ending if end is not None else None)


def _standing(report: Report, silent_s: float, *, sure: bool, over: bool) -> dict[str, object]:
    """What changes in the report of a job that has stood still for so long."""
    found, changes = report.diagnosis, dict[str, object]()
    if over and report.outcome == "healthy":
        changes["outcome"] = "failed"  # nobody said that it ended: silence behind an alarm is no health
    if found.root_cause is None or changes:
        stood = duration(silent_s)
        said = (
            f"The job has been silent for {stood}, and made steps before." if sure else f"The job has made no step for {stood}."
        )
        found = found.model_copy(
            update={
                "category": "framework",
                "reason": "hang",
                "confidence": _HANG if sure else _PERHAPS,
                "by": "detector",
                "summary": said,
                "mitigation": "Look at the stacks of its processes (py-spy dump), then restart it from its last checkpoint.",
                "group": "hang-silent",
            }
        )
    if found.reason == "hang":
        remedy = shipped_policy().remedy("hang")
        changes["action"] = Action(kind=remedy.kind, why=remedy.why)
    return changes | {"diagnosis": found}


def _lacking(report: Report, missing: Mapping[str, Sequence[tuple[int, int]]]) -> Report:
    """``report`` with the note that bytes are missing, and which."""
    total = sum(end - begin for gaps in missing.values() for begin, end in gaps)
    doubt = f"{total:,} bytes of the log are missing: the cause may be in them."
    diagnosis = report.diagnosis.model_copy(update={"doubt": [*report.diagnosis.doubt, doubt]})
    return report.model_copy(update={"diagnosis": diagnosis, "problems": [*report.problems, *lacking(missing)]})


def lacking(missing: Mapping[str, Sequence[tuple[int, int]]]) -> list[Problem]:
    """Which bytes of which sources are missing; if there are very many sources, the first ones."""
    return [Problem(source=source, what=f"{_spans(gaps)} {_DAMAGED}") for source, gaps in missing.items()][:_MOST_TOLD]


def _spans(gaps: Sequence[tuple[int, int]]) -> str:
    """Which bytes, in words."""
    told = [f"{begin:,} to {end:,}" for begin, end in gaps[:_MOST_TOLD]]
    more = f" and {len(gaps) - _MOST_TOLD:,} more stretches" if len(gaps) > _MOST_TOLD else ""
    return f"bytes {', '.join(told)}{more}"


@remembered
def _cleaned(text: str) -> str:
    return redact(text).text


def redacted(report: Report) -> Report:
    """``report`` without the secrets in its lines."""

    def cleaned(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: cleaned(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [cleaned(part, name) for part in value]
        return _cleaned(value) if isinstance(value, str) and name in _WORDS else value

    whole = report.as_dict()
    return Report.model_validate({**whole, "diagnosis": cleaned(whole["diagnosis"])})
