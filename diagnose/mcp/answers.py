"""What is given to another agent: short enough for its context, and without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diagnose.redaction.text import Redactor

MOST_LINES = 200
LONGEST = 1200
"""characters of one line"""
_MOST_EVIDENCE = 20
_MOST_METRICS = 12
_NAMES = frozenset(["id", "job", "source", "sources", "path", "name", "node", "nodes", "fingerprint", "group", "rule", "next"])
"""fields by which the agent asks on; their values are given as they are"""


def brief(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the points of its series, and with the first of what is many."""
    diagnosis = dict(report["diagnosis"])
    for field in ("evidence", "others", "recovered"):
        diagnosis[field] = diagnosis.get(field, [])[:_MOST_EVIDENCE]
    metrics = {
        name: {field: value for field, value in figures.items() if field != "points"}
        for name, figures in list((report.get("metrics") or {}).items())[:_MOST_METRICS]
    }
    found: dict[str, Any] = _filled({**report, "diagnosis": diagnosis, "metrics": metrics})
    return found


def clear(answer: Any, *, hosts: bool = False) -> Any:
    """The answer with all its texts redacted, together, because a key may have many lines."""
    texts = [text[:LONGEST].replace("\n", " ") for text in _texts(answer)]
    told = iter(Redactor(hosts=hosts).lines(texts))
    return _with(answer, told, "")


def _filled(value: Any) -> Any:
    """Without what is unknown or empty, which costs an agent tokens and tells it nothing."""
    if isinstance(value, dict):
        parts = {name: _filled(one) for name, one in value.items()}
        return {name: one for name, one in parts.items() if one is not None and one != [] and one != {}}
    return [_filled(one) for one in value] if isinstance(value, list) else value


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """The texts of an answer, in order."""
    if isinstance(value, str):
        if name not in _NAMES:
            yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, name)


def _with(value: Any, told: Iterator[str], name: str) -> Any:
    """The same, each text replaced by the next one of ``told``."""
    if isinstance(value, str):
        return next(told) if name not in _NAMES else value
    if isinstance(value, dict):
        return {key: _with(one, told, key) for key, one in value.items()}
    return [_with(one, told, name) for one in value] if isinstance(value, list) else value
