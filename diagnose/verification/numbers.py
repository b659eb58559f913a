"""The numbers that a filter would drop: what shows how a training goes must be captured, and what is no number must stay.

A line with a number beside the name of a metric is a metric, whatever its author calls it. A filter without that capture would
drop the one line that shows that the loss leapt. And a filter that takes ``nan`` or ``inf`` for a number that nobody reads
would drop the first sign: these are near misses of every filter, for each number of its lines that is a decimal or has a name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from diagnose.knowledge.metrics import OF_A_KIND, shipped_metrics, words_of
from diagnose.matching.series import value_of

VALUE: Final = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
"""a number as metrics capture it"""
_NOT_NUMBERS: Final = ("nan", "inf")
_NAMED: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w./%-]{0,60}(?: [A-Za-z_][\w./%-]{0,60}){0,3})"
    rf"(?P<between>[\"']?(?: *[:=] *| *\| *| +)[\"(]?)(?P<value>{VALUE})(?![\w.])",
    re.IGNORECASE,
)
_DECIMAL: Final = re.compile(r"(?<![\w.'\"/:-])[-+]?\d+\.\d+(?:[eE][-+]?\d+)?(?![\w.'\"/-])")
_LABELLED: Final = re.compile(
    r"(?<![\w/.])[\w.-]{1,100}[\"'\])]{0,9}(?: ?= ?| ?: )(?P<value>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.'\"/:-]|,? +\d)"
)
"""a number with a name before it, whether anybody knows the name or not. Not the first one of a list"""
_MOST: Final = 24
"""numbers of a line that are tried"""


class Named(NamedTuple):
    """A number with the name of a metric before it."""

    quantity: str
    begin: int
    """of the name"""
    start: int
    end: int


@functools.cache
def watched() -> frozenset[str]:
    """The series that show whether a training goes well: those with a direction, and the norm of the gradient."""
    quantities = shipped_metrics().quantities.values()
    better = {one.name for one in quantities if one.better is not None}
    better |= {one.evaluation for one in quantities if one.better is not None and one.evaluation is not None}
    return frozenset(better | {"grad_norm"})


def named(line: str) -> Iterator[Named]:
    """The numbers of a line that have a name, by the names that trainers use."""
    metrics = shipped_metrics()
    for found in _NAMED.finditer(line):
        parts = found["name"].split(" ")
        for first in range(len(parts)):
            name = " ".join(parts[first:])
            meaning = metrics.meaning(words_of(name))
            if meaning is not None and meaning.rank < OF_A_KIND:
                other = metrics.quantities[meaning.quantity].evaluation if meaning.evaluation else None
                yield Named(other or meaning.quantity, found.end("name") - len(name), *found.span("value"))
                break


def dropped(line: str, expression: Any, captures: Mapping[str, Any]) -> str | None:
    """What a filter would lose of a line that it matches; None if nothing that matters.

    ``expression`` is the filter's, ``captures`` are those of its metrics, all compiled for bytes.
    """
    for one in named(line):
        if one.quantity in watched() and not _captured(line, one.start, captures, one.quantity):
            return f"{one.quantity} stands in it, and it does not capture its number {line[one.start : one.end]!r}"
    spans = [(one.start, one.end) for one in named(line) if one.quantity in watched()]
    spans += [found.span() for found in _DECIMAL.finditer(line)] + [found.span("value") for found in _LABELLED.finditer(line)]
    for start, end in list(dict.fromkeys(spans))[:_MOST]:
        for text in _NOT_NUMBERS:
            other = line[:start] + text + line[end:]
            if expression.search(other.encode()) and not _captured(other, start, captures):
                return f"it also drops the line with {text} in place of {line[start:end]!r}"
    return None


def _captured(line: str, start: int, captures: Mapping[str, Any], quantity: str | None = None) -> bool:
    """Whether one of the captures reads the number that stands there."""
    at = len(line[:start].encode())
    for name, capture in captures.items():
        if quantity is None or name == quantity:
            found = capture.search(line.encode())
            if found and found[1] is not None and found.start(1) == at and value_of(found[1]) is not None:
                return True
    return False
