"""How a job ended, as a caller knows it -> a hypothesis, for a log that does not say why.

A shell reports the end by a signal as 128 and its number, Python as its negative number. A crash, a kill or a stop is then
known although no line tells of it. Other exit codes only say that something failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.detectors.course import Anomaly
from diagnose.diagnosis.evidence import Event, Evidence
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.knowledge.taxonomy import shipped_taxonomy

_CRASHES: Final = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}
_STOPS: Final = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 15: "SIGTERM"}
_KILL: Final = 9
_SURE: Final = {"native_crash": 0.8, "preempted": 0.7, "host_out_of_memory": 0.6}
"""how sure such an answer is: nobody has measured it, so it is below what lines that rules know are sure of"""
_REMEDIES: Final = {
    "native_crash": "Run it again with PYTHONFAULTHANDLER=1, or look at the core file: either shows the call that crashed.",
    "host_out_of_memory": (
        "The kernel kills so where memory ends: look at the kernel log of the node (dmesg), and at the memory that the "
        "scheduler or the container measured."
    ),
    "preempted": "Ask the scheduler who ended it (sacct, kubectl describe): no line says that the job itself failed.",
}
_UNEXPLAINED: Final = "Look where else it may have written: the standard error of its launcher, the log of its nodes."
_ERRORS: Final = re.compile(r"(?i)(?:^|[^a-z])(?:std)?err(?:$|[^a-z])")


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller knows: the job failed. Perhaps also its exit code, or the signal that ended it."""

    exit_code: int | None = None
    signal: int | None = None

    @property
    def by_signal(self) -> int | None:
        """The signal that ended it, if it is one that says why. Slurm has numbers of its own, too."""
        code = self.exit_code or 0
        by_code = code - 128 if code > 128 else -code if code < -1 else 0  # -1 is a number of programs, not of signals
        found = self.signal or by_code
        return found if found == _KILL or found in _CRASHES or found in _STOPS else None

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.signal:
            return f"the job was ended by signal {self.signal}"
        return f"the job ended with exit code {self.exit_code}" if self.exit_code else "the job failed"


def told_of(*, failed: bool = False, exit_code: int | None = None, signal: int | None = None) -> Told | None:
    """None if nobody says that the job failed."""
    return Told(exit_code or None, signal or None) if failed or exit_code or signal else None


def ended(told: Told, evidence: Evidence, log: Compression, unclaimed: Sequence[Event]) -> Hypothesis | None:
    """The hypothesis that the end itself is. It stands at the last line; at line 0 if the log has none. None if nothing is
    known but that it failed, and there is no line to show; nor if nobody sent a log.
    """
    signal = told.by_signal
    event = (_last_word(evidence, unclaimed) if signal is None else None) or _last_line(evidence, log)
    if event is None and (signal is None or not evidence.sources):
        return None
    event = event or Event(0, 0, 0, "", -1, 0)
    taxonomy = shipped_taxonomy()
    if signal is None:
        layer = taxonomy.depth("user")
        return Hypothesis(event, None, "unknown", layer, False, False, kind="line", probability=1.0)
    reason = "native_crash" if signal in _CRASHES else "preempted" if signal in _STOPS else "host_out_of_memory"
    name = _CRASHES.get(signal) or _STOPS.get(signal) or "SIGKILL"
    said = f"{name} ended the job, and no line of its log says why"
    anomaly = Anomaly("exit status", reason, event.source, event.line, said)
    layer = taxonomy.depth("scheduler" if reason == "preempted" else "framework")
    one = Hypothesis(event, None, reason, layer, False, False, detector=anomaly, kind="status")
    one.probability = _SURE[reason]
    return one


def remedy(one: Hypothesis | None) -> str:
    """What a person should do about an end that no line explains."""
    return _REMEDIES.get(one.reason, _UNEXPLAINED) if one is not None else _UNEXPLAINED


def _last_word(evidence: Evidence, unclaimed: Sequence[Event]) -> Event | None:
    """The last line that no rule knows, of standard error where that is a source of its own. A person should begin there."""
    words = [event for event in unclaimed if event.rule == -1]
    errors = [event for event in words if _ERRORS.search(evidence.sources[event.source].name)]
    return next(reversed(errors or words), None)


def _last_line(evidence: Evidence, log: Compression) -> Event | None:
    """The last line of work or of anything else, of the source that was read last."""
    last = evidence.events[-1] if evidence.events else None
    source = last.source if last is not None else 0
    progress = log.progress(source)
    if not progress.last or (last is not None and last.line > progress.last_line):
        return last
    text = progress.last.decode("utf-8", "replace")
    return Event(last.order + 1 if last is not None else 0, source, progress.last_line, text, -1, 0)
