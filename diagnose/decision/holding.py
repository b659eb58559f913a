"""A job that its own people must mend, under a controller that would start it again: it is held, where the policy says so."""

from __future__ import annotations

from typing import Final

from diagnose.decision.case import Case
from diagnose.decision.history import History
from diagnose.decision.policy import HOLD

OF_THE_JOB: Final = frozenset({"fix_code", "fix_config"})
"""what only the job's own people can do"""


def controller(case: Case) -> None:
    """Would its controller start it again?"""
    if case.settled or case.incident is not None or case.kind not in OF_THE_JOB or not _under_a_controller(case.history):
        return
    # Nobody's mode is meant for this: it is done only where the policy, or the class, names it.
    own = HOLD in case.job_class.modes if case.job_class is not None else False
    if not own and HOLD not in case.policy.modes:
        return
    case.holds = True
    case.note(
        "controller", "its controller would start it again, and it would fail again: it is held until somebody lets it go"
    )


def _under_a_controller(history: History) -> bool:
    """Whether it is a job of Kubernetes that is not known to be over. Slurm starts nothing again that has failed."""
    if history.ending is not None:
        return False
    if history.subject is not None:
        return history.subject.count("/") == 2  # jobs.batch/ml/llama
    return bool(history.labels.get("namespace"))
