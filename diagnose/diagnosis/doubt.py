"""What speaks against the answer and what is missing, in plain sentences."""

from __future__ import annotations

from typing import Final

from diagnose.diagnosis.finding import Finding
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.signals import BY_NAME

NO_END: Final = "No line says that the job ended well: the log may have been copied, or cut, before the end."
_RIVAL = 0.15
_MOST = 6
_OWN_WORDS = {"logged", "stop", "echo", "nothing_failed", "no_progress"}
"""signals that have their own sentence here, or that alone are no reason to doubt"""


def doubts(finding: Finding, best: Hypothesis, skipped: int) -> list[str]:
    """The sentences, the weightiest first."""
    said = _rivals(finding) + _against(best) + (_missing(finding, best) if finding.failed else _unseen(best))
    if skipped:
        said.append(f"{skipped:,} kept lines were not read, for there are too many.")
    return said[:_MOST]


def _rivals(finding: Finding) -> list[str]:
    found = []
    for one in finding.alternatives:
        if one.confidence >= _RIVAL:
            what = "that nothing failed" if one.best is None else one.reason
            where = f", by line {one.best.event.line:,}" if one.best is not None else ""
            found.append(f"Another answer is almost as likely: {what}{where} ({one.confidence:.0%}).")
    return found


def _against(best: Hypothesis) -> list[str]:
    """What speaks against the answer itself."""
    names = [name for name in best.signals if name in BY_NAME and BY_NAME[name].weight < 0 and name not in _OWN_WORDS]
    names.sort(key=lambda name: BY_NAME[name].weight)
    return [f"Against the line speaks that {BY_NAME[name].says}." for name in names]


def _missing(finding: Finding, best: Hypothesis) -> list[str]:
    found = []
    if best.symptom:
        found.append("The line only echoes a failure elsewhere; no line of this log shows the failure itself.")
    if finding.told is not None and finding.reason != "unknown":
        found.append("No line of the log shows it: the answer rests on how the job ended.")
    if "unfinished" in best.signals:
        found.append("The log ends within the traceback: the exception itself is missing.")
    elif finding.reason == "unknown":
        found.append("No rule knows a line that explains the failure.")
    return found


def _unseen(best: Hypothesis) -> list[str]:
    """What a healthy verdict could not see."""
    found = []
    if "ended_well" not in best.signals:
        found.append(NO_END)
    if "no_progress" in best.signals:
        found.append("The log shows no step, no loss and no progress bar.")
    return found
