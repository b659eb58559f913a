"""The numbers that a filter would drop: what shows how a training goes must be captured, and what is news must stay.

A line with a number beside the name of a metric is a metric, whatever its author calls it. A filter without that capture would
drop the one line that shows that the loss leapt. Near misses of every filter are its own lines with another number in one
place, if nothing captures the number there:

- ``nan`` and ``inf``, for each decimal and each number with a name: that would be the first sign;
- a leap, for each number that measures something: a decimal, or one that trainers have a name for. Times, sizes, speeds, shares
  and positions may be anything, and so may whole numbers, which count and name things;
- any number with which the line sounds like a failure, as ``errors: 9`` does where the lines say ``errors: 0``.

A line that no filter may take for its numbers is left to folds, which keep a leap (docs/folds.md).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.metrics import OF_A_KIND, shipped_metrics, words_of
from diagnose.matching.series import value_of

VALUE: Final = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
"""a number as metrics capture it"""
_NOT_NUMBERS: Final = ("nan", "inf")
_NAMED: Final = re.compile(
    r"(?<![A-Za-z_])(?P<name>[A-Za-z_][\w./%-]{0,60}(?: [A-Za-z_][\w./%-]{0,60}){0,3})"
    rf"(?P<between>[\"']?(?: *[:=] *| *\| *| +)[\"(]?)(?P<value>{VALUE})(?![\w.])",
    re.IGNORECASE,
)
_DECIMAL: Final = re.compile(r"(?<![\w.'\"/:-])[-+]?\d+\.\d+(?:[eE][-+]?\d+)?(?![\w.'\"/-])")
_LABELLED: Final = re.compile(
    r"(?<![\w/.])[\w.-]{1,100}[\"'\])]{0,9}(?: ?= ?| ?: )(?P<value>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.'\"/:-]|,? +\d)"
)
"""a number with a name before it, whether anybody knows the name or not. Not the first one of a list"""
_NUMBER: Final = re.compile(r"(?<![\d.])\d+(?![\d.])")
_OTHERS: Final = ("9", "512")
"""what a count of failures may be"""
_FREE: Final = frozenset(
    "step epoch total_steps progress step_time_s step_time_ms tokens_per_s samples_per_s tflops memory_gb consumed_samples"
    " consumed_tokens".split()
)
"""the series that may have any value: positions, times, speeds and sizes"""
_UNIT: Final = (
    r"(?:%|[kKMGTP]?i?[bB](?:ytes?|its?)?(?:/s(?:ec)?)?|[mun\u00b5]?s(?:ecs?|econds?)?|mins?|minutes?|h(?:rs?|ours?)?|days?|[kKMG]?Hz"
    r"|\w+/(?:s|sec|second|it|iter|step|min|h|hour|GPU|gpu|device))"
)
_UNIT_BEHIND: Final = re.compile(rf" ?{_UNIT}(?![\w])|:\d")
"""what makes a number a time, a size, a speed or a share. A time of the audit log has a serial number behind it"""
_UNIT_BEFORE: Final = re.compile(rf"[\[(]{_UNIT}[\])]")
"""time (ms) | forward: 12.3 | backward: 24.6"""
_ENDS_NAME: Final = re.compile(r"[,;|(\[{]|(?<![\w.])[-+]?\d[\d.]*")
"""what the name of the next number does not reach over"""
_MOST_WORDS: Final = 6
"""of a name"""
_LEFT: Final = 80
"""letters before a number in which its name is looked for"""
_OF_FREE: Final = frozenset(
    "time times timing timings elapsed eta took duration latency seconds secs sec ms timestamp date version id memory mem size"
    " bytes gb gib mb mib throughput speed per flops tflops mfu progress percent allocated reserved".split()
)
"""words of a name that say the same"""
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


@functools.cache
def measured() -> frozenset[str]:
    """The series of which a leap is news."""
    return frozenset(shipped_metrics().quantities) - _FREE


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
    said = list(named(line))
    for one in said:
        if one.quantity in watched() and not _captured(line, one.start, captures, one.quantity):
            return f"{one.quantity} stands in it, and it does not capture its number {line[one.start : one.end]!r}"
    decimals = [found.span() for found in _DECIMAL.finditer(line)]
    labelled = [found.span("value") for found in _LABELLED.finditer(line)]
    read = [(one.start, one.end) for one in said if one.quantity in watched()]
    measures = dict.fromkeys([*decimals, *((one.start, one.end) for one in said if one.quantity in measured())])
    leaping = [span for span in measures if not _may_be_anything(line, *span)]
    tries: list[tuple[tuple[int, int], tuple[str, ...]]]
    tries = [(span, _NOT_NUMBERS) for span in list(dict.fromkeys([*read, *decimals, *labelled]))[:_MOST]]
    tries += [(span, (_leap(line[slice(*span)]),)) for span in leaping[:_MOST]]
    for (start, end), texts in tries:
        for text in texts:
            other = line[:start] + text + line[end:]
            if expression.search(other.encode()) and not _captured(other, start, captures):
                return f"it also drops the line with {text} in place of {line[start:end]!r}"
    return _unheard(line, expression, captures)


def _unheard(line: str, expression: Any, captures: Mapping[str, Any]) -> str | None:
    """Whether another number would make the line sound like a failure, and the filter would drop it all the same."""
    if sounds(line.encode(), 0):
        return None
    for found in list(_NUMBER.finditer(line))[:_MOST]:
        for text in _OTHERS:
            other = line[: found.start()] + text + line[found.end() :]
            if (
                sounds(other.encode(), 0)
                and expression.search(other.encode())
                and not _captured(other, found.start(), captures)
            ):
                return f"it also drops the line with {text} in place of {found[0]!r}, which sounds like a failure"
    return None


def _may_be_anything(line: str, start: int, end: int) -> bool:
    """Whether a number is a time, a size, a speed, a share, an id or a position: no value of it is news."""
    if _UNIT_BEHIND.match(line, end) or _UNIT_BEFORE.search(line, 0, start):
        return True
    left = line[max(0, start - _LEFT) : start].rstrip(" ([{=:\"'-+")
    words = words_of(_ENDS_NAME.split(left)[-1])[-_MOST_WORDS:]
    meaning = shipped_metrics().meaning(words)
    return (meaning is not None and meaning.quantity in _FREE) or not _OF_FREE.isdisjoint(words)


def _leap(number: str) -> str:
    """The number, so much greater that it is news."""
    return re.sub(r"(?=[\d.])", "98765", number, count=1)


def _captured(line: str, start: int, captures: Mapping[str, Any], quantity: str | None = None) -> bool:
    """Whether one of the captures reads the number that stands there."""
    at = len(line[:start].encode())
    for name, capture in captures.items():
        if quantity is None or name == quantity:
            found = capture.search(line.encode())
            if found and found[1] is not None and found.start(1) == at and value_of(found[1]) is not None:
                return True
    return False
