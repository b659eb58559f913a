"""Numbers with a unit, as people write them in settings: how they are read, shown, and which are allowed.

A model declares a field as ``wait_s: Seconds = Field(5.0, ge=0, le=DAY_S)``. pydantic refuses what is out of range, and
``allowed`` says in a sentence what is accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
_NUMBER = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The unit of a number."""

    noun: str
    """such as ``a time``"""
    example: str
    factors: Mapping[str, float]
    """written unit -> its size in the setting's own unit, which has size 1"""

    @property
    def own(self) -> str:
        """The unit of a number that stands alone."""
        return next(name for name, factor in self.factors.items() if factor == 1)

    def read(self, value: object) -> object:
        """The number in a text, in the own unit. What is no text is left to pydantic."""
        if not isinstance(value, str):
            return value
        match = _NUMBER.fullmatch(value.strip())
        factor = self.factors.get(match[2] or self.own) if match else None
        if match is None or factor is None:
            raise ValueError("not a number with a known unit")
        number = float(match[1]) * factor
        return int(number) if math.isfinite(number) and number.is_integer() else number

    def show(self, value: float) -> str:
        """The number in the largest unit that divides it. ``read`` gives the same number again."""
        for name, factor in sorted(self.factors.items(), key=lambda one: -one[1]):
            if value and factor >= 1 and not factor % 1 and value % factor == 0:
                return f"{value / factor:.0f}{name}"
        return f"{value!r}{self.own}" if value else f"0{self.own}"


SECONDS: Final = Unit("a time", "90s, 10m or 24h", {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": DAY_S})
DAYS: Final = Unit("a number of days", "14, 0.5 or 12h", {"s": 1 / DAY_S, "m": 60 / DAY_S, "h": 1 / 24, "d": 1})
BYTES: Final = Unit(
    "a size", "64MiB or a number of bytes",
    {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "EiB": 1 << 60, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
)  # fmt: skip

Seconds = Annotated[float, BeforeValidator(SECONDS.read), SECONDS]
Days = Annotated[float, BeforeValidator(DAYS.read), DAYS]
Bytes = Annotated[int, BeforeValidator(BYTES.read), BYTES]


def unit_of(field: FieldInfo) -> Unit | None:
    """The unit of a field's numbers, if they have one."""
    below = [one for part in get_args(field.annotation) for one in get_args(part)]
    return next((one for one in (*field.metadata, *below) if isinstance(one, Unit)), None)


def is_optional(field: FieldInfo) -> bool:
    """Whether the field may be None."""
    return NoneType in get_args(field.annotation)


def allowed(field: FieldInfo) -> str:
    """The values that a field accepts, in words that follow *give*."""
    if field.examples:
        return str(field.examples[0])
    kind = _kind(field)
    if get_origin(kind) is Literal:
        return " or ".join(", ".join(get_args(kind)).rsplit(", ", 1))
    unit = unit_of(field)
    if unit is not None:
        return f"{unit.noun}{_range(field, unit)}, such as {unit.example}"
    nouns: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return nouns.get(kind, "a text") + _range(field, None)


def _kind(field: FieldInfo) -> Any:
    """The type of a field without None and without annotations."""
    kinds = [one for one in get_args(field.annotation) if one is not NoneType] if is_optional(field) else [field.annotation]
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]


def _range(field: FieldInfo, unit: Unit | None) -> str:
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    low, high = (_shown(one, unit) for one in (least, most))
    if low and high:
        return f" from {low} to {high}"
    return f" of {low} or more" if low else ""


def _shown(bound: Any, unit: Unit | None) -> str:
    if bound is None:
        return ""
    if unit is DAYS and 0 < bound < 1:
        return SECONDS.show(round(bound * DAY_S, 3))
    return unit.show(bound) if unit is not None else f"{bound:,}"
