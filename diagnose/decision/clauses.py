"""The clauses of a policy file: values by dotted name, each with its file and line, read into types.

Mistakes are collected, not raised, so that one check shows them all. A wrong value reads as a harmless one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

from diagnose.errors import RuleError, nearest

Mode = Literal["observe", "approve", "auto"]
MODES: Final[tuple[Mode, ...]] = ("observe", "approve", "auto")
"""from the most careful on"""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_S = 10 * 365 * 86400


def seconds_in(text: str) -> float | None:
    """The seconds in ``90s``, ``10m``, ``24h`` or ``7d``. None if it is none of these, or more than ten years."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else math.inf
    return seconds if seconds <= _MOST_S else None


def number_in(text: str) -> float | None:
    """A plain number of 0 or more: no sign, no exponent."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text) else None


class Clauses:
    """The mapping of one file, or of one laid over another."""

    def __init__(self, value: dict[str, Any], lines: Mapping[str, str], path: str) -> None:
        self.value = value
        self.path = path
        self.errors: list[RuleError] = []
        self._lines = dict(lines)

    def under(self, other: Clauses) -> Clauses:
        """These clauses with ``other`` laid over them."""
        lines = dict(self._lines)
        value = _merged(self.value, other.value, "", lines, other._lines)
        return Clauses(value, lines, other.path)

    def lines_by_name(self) -> dict[str, str]:
        return dict(self._lines)

    def alias(self, at: str, name: str) -> None:
        """Also give the clauses under ``at`` another name."""
        for place, line in list(self._lines.items()):
            if place == at or place.startswith(at + "."):
                self._lines[name + place[len(at) :]] = line

    # --- errors ------------------------------------------------------------------------------------------------------------

    def where(self, at: str) -> str:
        while at and at not in self._lines:
            at = at.rpartition(".")[0]
        return self._lines.get(at, self.path)

    def wrong(self, at: str, what: str, remedy: str) -> None:
        place = "" if what.startswith(("no action", "unknown reason", "a policy")) else f"{at}: "
        self.errors.append(RuleError(f"{place}{what}", where=self.where(at), remedy=remedy))

    def only(self, at: str, names: Collection[str]) -> None:
        """Object to any other key. A misspelt limit would be no limit."""
        for name in self.names(at):
            if name not in names:
                place = f"{at}.{name}" if at else name
                near = nearest(name, names)
                meant = f"did you mean {near}? " if near else ""
                self.wrong(place, "there is no such clause", f"{meant}those here are {', '.join(names)}")

    # --- reading -----------------------------------------------------------------------------------------------------------

    def get(self, at: str) -> Any:
        found: Any = self.value
        for name in at.split(".") if at else ():
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def has(self, at: str) -> bool:
        return self.get(at) is not None

    def names(self, at: str) -> list[str]:
        """The keys of a table. Empty if there is no table."""
        found = self.get(at)
        if found is None or found == "":
            return []
        if not isinstance(found, dict):
            self.wrong(at, "is no table", "write   NAME: VALUE   lines under it, or {}")
            return []
        return list(found)

    def length(self, at: str) -> int:
        found = self.get(at)
        if found is None or found == "":
            return 0
        if not isinstance(found, list):
            self.wrong(at, "is no list", "write   - ...   lines under it, or []")
            return 0
        return len(found)

    def text(self, at: str) -> str | None:
        found = self.get(at)
        if found is None:
            return None
        if not isinstance(found, str):
            self.wrong(at, "is no text", "write one value")
            return None
        return found

    def words(self, at: str) -> tuple[str, ...]:
        found = self.get(at)
        if found is None or found == "":
            return ()
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            self.wrong(at, "is no list of words", "write   [ONE, TWO]   or []")
            return ()
        return tuple(found)

    def whole(self, at: str, least: int, default: int | None = None) -> int:
        found = self.get(at)
        if found is None and default is not None:
            return default
        if not isinstance(found, str) or not re.fullmatch(r"[0-9]{1,9}", found) or int(found) < least:
            self.wrong(at, self._missing(found, "whole number"), f"write a whole number of {least} or more")
            return max(least, default or 0)
        return int(found)

    def seconds(self, at: str, default: float | None = None) -> float:
        found = self.get(at)
        if found is None and default is not None:
            return default
        seconds = seconds_in(found) if isinstance(found, str) else None
        if seconds is None:
            self.wrong(at, self._missing(found, "duration"), "write a number and s, m, h or d, as 90s or 24h")
            return default or 0.0
        return seconds

    def _missing(self, found: Any, kind: str) -> str:
        return f"the {kind} is missing" if found is None else f"{found!r} is no {kind} that can be used"


def _merged(
    base: dict[str, Any], over: dict[str, Any], at: str, lines: dict[str, str], newer: Mapping[str, str]
) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        place = f"{at}.{name}" if at else name
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merged[name] = _merged(base[name], value, place, lines, newer)
        else:
            for old in [known for known in lines if known == place or known.startswith(place + ".")]:
                del lines[old]
            merged[name] = value
            lines.update({new: line for new, line in newer.items() if new == place or new.startswith(place + ".")})
            continue
        lines[place] = newer.get(place, lines.get(place, ""))
    return merged
