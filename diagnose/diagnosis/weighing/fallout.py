"""Which fault made a process abort."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.scene import Scene

_CRASH_BACK = 100
"""so many of the faults before an abort are asked"""
_ABORTS, _ABORT_LINES = re.compile(r"(?i)\babort|SIGABRT|terminate called|libc\+\+abi"), 40
"""a process ended itself; why, it says in so many lines before that"""
_THROWN, _THROWN_LINES = re.compile(r"\s*what\(\): "), 3
"""a C++ program says what was thrown in so many lines after it"""


def is_fallout(one: Hypothesis, kinds: Sequence[Hypothesis], scene: Scene) -> bool:
    """Whether a process aborted right after another fault, and so because of it."""
    return fallout_of(one, kinds, scene) is not None


def fallout_of(one: Hypothesis, kinds: Sequence[Hypothesis], scene: Scene) -> Hypothesis | None:
    """The fault because of which a process aborted."""
    if one.reason != "native_crash" or one.recovered:
        return None
    for other in kinds:  # a C++ program that aborts prints what was thrown in the next lines
        more = other.event.line - one.event.line
        if other.event.source == one.event.source and 0 < more <= _THROWN_LINES and _THROWN.match(other.event.body):
            return other if other.reason not in (one.reason, "unknown") and not other.recovered else None
    back = [f for f in kinds if not f.recovered and f.kind != "line" and "warned" not in f.signals and scene.before(f, one)]
    back = [f for f in back if not (f.symptom and scene.taxonomy.has(f.reason, "nameless"))]  # which says no cause
    because = next((f for f in back[-_CRASH_BACK:] if f.reason != one.reason and scene.near(f, one)), None)
    return because or (_said_before_abort(one, kinds, back) if _ABORTS.search(one.event.body) else None)


def _said_before_abort(one: Hypothesis, kinds: Sequence[Hypothesis], known: Sequence[Hypothesis]) -> Hypothesis | None:
    """What a program said before it ended itself: who calls abort() says why, be it in words that no rule knows."""
    source, line = one.event.source, one.event.line
    since = max((f.event.line for f in known if f.event.source == source and f.event.line < line), default=0)
    said = [
        f
        for f in kinds
        if f.kind == "line"
        and not f.recovered
        and f.event.source == source
        and max(since, line - _ABORT_LINES) < f.event.line < line
        and not f.like.soft
        and not f.like.info
        and "softened" not in f.signals
    ]
    plain = [f for f in said if f.words is not None and f.words.plain and f.reason != one.reason]
    return next(iter(plain), next((f for f in said if f.like.loud), None))
