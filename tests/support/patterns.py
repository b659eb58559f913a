"""A regular expression -> texts of it, at least one for each of its branches."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any

_parser: Any = __import__("re._parser", fromlist=["parse"])
_MOST_COMBINATIONS = 400
_OF_CATEGORY = {
    "CATEGORY_DIGIT": "3", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w", "CATEGORY_NOT_SPACE": "w", "CATEGORY_NOT_WORD": "-"
}  # fmt: skip


def texts(pattern: re.Pattern[str]) -> list[str]:
    """Each alternative, each item of a set and both ends of a repeat occur in one of them. Look-around and edges of words
    are not heeded, so the pattern may refuse a few."""
    return list(dict.fromkeys(_sequence(_parser.parse(pattern.pattern, pattern.flags))))


def _sequence(nodes: Any) -> list[str]:
    parts = [_node(str(kind), value) for kind, value in nodes]
    if prod(map(len, parts)) <= _MOST_COMBINATIONS:
        return ["".join(chosen) for chosen in product(*parts)]
    rows = max(map(len, parts))
    return [
        "".join(part[(row + shift * place) % len(part)] for place, part in enumerate(parts))
        for row in range(rows)
        for shift in (0, 1)
    ]


def _node(kind: str, value: Any) -> list[str]:
    match kind:
        case "LITERAL":
            return [chr(value)]
        case "BRANCH":
            return [text for branch in value[1] for text in _sequence(branch)]
        case "SUBPATTERN":
            return _sequence(value[3])
        case "IN":
            return [text for item in value for text in _node(str(item[0]), item[1])]
        case "RANGE":
            return [chr(value[0]), chr(value[1])]
        case "CATEGORY":
            return [_OF_CATEGORY[str(value)]]
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, _most, inner = value
            once = _sequence(inner)
            return [""] * (least == 0) + [text * max(least, 1) for text in once]
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return [""]
    raise ValueError(f"no text for {kind} of a pattern")
