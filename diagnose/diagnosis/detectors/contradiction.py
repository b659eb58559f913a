"""A quantity that the log tells twice, in ways that contradict each other. That is no failure, but a person should know it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from diagnose.compression.contradiction import contradict
from diagnose.compression.numbers import OTHER
from diagnose.diagnosis.detectors.course import Anomaly, Course
from diagnose.knowledge.metrics import shipped_metrics, words_of

_SAYS_NOTHING = frozenset("train training trn tr trainer value values current cur metric metrics stats log logs".split())
"""words that make no other number of a name: an average, a total or one part of it may well differ"""


def find(course: Course) -> Iterator[Anomaly]:
    for quantity, about in shipped_metrics().quantities.items():
        if about.better is None or quantity not in course.series:
            continue
        source, main = course.series[quantity]
        for name, (where, other) in course.series.items():
            if where == source and name != quantity and _same(name, quantity) and contradict(main, other):
                first = other.bucket(0)
                yield Anomaly("contradiction", None, source, first.line, _sentence(quantity, name, main.last, other.last))


@lru_cache(4096)
def _same(name: str, quantity: str) -> bool:
    """Whether the two names stand for the same number."""
    if name == OTHER + quantity:
        return True
    words = [word for word in words_of(name) if word not in _SAYS_NOTHING]
    return "_".join(words) == quantity


def _sentence(quantity: str, name: str, last: float, others: float) -> str:
    what = quantity.replace("_", " ")
    where = "in other lines" if name.startswith(OTHER) else f"as {name}"
    return f"The log tells its {what} twice, and the two differ: the last {what} is {last:.4g}, and {others:.4g} {where}."
