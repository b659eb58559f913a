"""Report -> whether a model is asked about it, why, and how much the question is worth.

A model is asked about every failure, because a question costs a thousandth of a wrong answer. It is also asked about a job that
is called healthy without proof, if something sounds like a failure. If the budget is too small for all questions, those with
the highest ``worth`` come first.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from diagnose.agent.witnesses import RULES, SURE, Record
from diagnose.diagnosis.candidates import is_generic
from diagnose.diagnosis.doubt import NO_END
from diagnose.knowledge.rules import Rule
from diagnose.report import Report

_WHY: dict[str, str] = {
    "line": "nothing explains the failure",
    "echo": "only an echo of a fault elsewhere tells of it",
    "generic": "only an exception or a general rule tells of it",
    "detector": "only the numbers of the job tell of it",
    "specific": "every failure gets a second opinion",
}


def kind_of(report: Report, rules: Sequence[Rule]) -> str:
    """The kind of evidence of the rules' answer: one of ``calibration.KINDS``."""
    diagnosis = report.diagnosis
    if report.outcome == "healthy":
        return "quiet" if NO_END in diagnosis.doubt else "well"
    if diagnosis.reason == "unknown" or diagnosis.by == "none":
        return "line"
    if diagnosis.by == "detector":
        return "detector"
    rule = next((rule for rule in rules if rule.name == diagnosis.rule), None)
    if rule is None:
        return "generic"
    if rule.severity == "warning":
        return "line"
    if rule.symptom:
        return "echo"
    return "generic" if is_generic(rule) else "specific"


def why_ask(report: Report, rules: Sequence[Rule]) -> str | None:
    """Why a model is asked about the report, in half a sentence. None if it is not asked."""
    if report.outcome == "failed":
        return _WHY[kind_of(report, rules)]
    heard = any(other.category != "none" for other in report.diagnosis.alternatives)
    if report.outcome == "healthy" and heard and kind_of(report, rules) == "quiet":
        return "nothing says that the job ended well, and a line sounds like a failure"
    return None


def subject(report: Report, kind: str) -> str | None:
    """What a model agrees with or objects to, for the record of the rules: the rule that knows exactly this message, else this
    message, which is named by its group. None if the rules name no cause.
    """
    diagnosis = report.diagnosis
    if kind == "specific" and diagnosis.rule is not None:
        return diagnosis.rule
    if kind in _SETTLED_BY_GROUP and diagnosis.group is not None:
        return f"group {diagnosis.group}"
    return None


def settled(report: Report, kind: str, records: Mapping[str, Record]) -> bool:
    """Whether a question would bring nothing: the rules are sure of this message, and models have always agreed with them.

    So the questions of a cluster become fewer while it lives. One in ten is asked all the same, so that a rule that went wrong
    is found out. Of what only an echo or an unknown line tells, a model's words are better: it is asked until there is a rule.
    """
    rules, about = records.get(RULES), subject(report, kind)
    if rules is None or about is None or report.diagnosis.confidence < (SURE if kind == "specific" else _SURE_OF_GROUP):
        return False
    return rules.settled(about) and zlib.crc32(report.job.id.encode()) % _STILL_ASKED != 0


_SETTLED_BY_GROUP = ("generic", "detector")
_SURE_OF_GROUP = 0.8
"""an answer for a message that came before, always with the same answer, need not be as sure as one by a rule for it"""
_STILL_ASKED = 10


def worth(report: Report, cost: float) -> float:
    """How much a question is worth: the chance that the answer is wrong, times what the job cost (in any unit)."""
    return (1.0 - report.diagnosis.confidence) * max(1.0, cost)
