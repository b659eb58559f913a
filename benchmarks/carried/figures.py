"""What the parts find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a part finds."""

    value: float
    unit: str
    more_is_better: bool = False


Figures = dict[str, Figure]
