"""A fault: something that failed, as one line or one chain of tracebacks tells."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.diagnosis.detectors.course import Anomaly
from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.tracebacks import Traceback
from diagnose.knowledge.rules import Rule


@dataclass(slots=True, eq=False)
class Fault:
    """Something that failed, as one line tells."""

    event: Event
    rule: Rule | None
    reason: str
    layer: int
    """0 is the metal"""
    fatal: bool
    symptom: bool
    traceback: Traceback | None = None
    moment: float | None = None
    detector: Anomaly | None = None
    handled: bool = False
    """a logger printed it: the program was still in control"""
    recovered: bool = False
    graver: Fault | None = None
    """what it came to; its action counts"""


def captures(rule: Rule | None, body: str) -> dict[str, str]:
    """The named groups of the rule in ``body``."""
    if rule is None or "(?P<" not in rule.pattern:
        return {}
    import regex

    try:
        found = regex.search(rule.pattern, body, timeout=0.05)
    except TimeoutError:
        return {}
    return {name: value for name, value in found.groupdict().items() if value} if found else {}
