"""The words for what can go wrong (category, reason, layer), from ``rules/taxonomy.yaml``, which a site may extend."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from diagnose.knowledge.parsed import parsed

PROPERTIES: Final = (
    "machine", "also_programs", "soft", "witness", "nameless", "general", "stop", "of_a_stop", "kills", "stated", "numbers",
    "course", "not_the_data", "seen_from_above", "reached",
)  # fmt: skip
"""properties of reasons; ``rules/taxonomy.yaml`` says what each means"""


@dataclass(frozen=True, slots=True)
class Taxonomy:
    category_of: dict[str, str]
    """reason -> category"""
    layers: tuple[str, ...]
    """from the hardware up; a fault in an earlier layer explains one in a later layer"""
    kinds: tuple[str, ...]
    severities: tuple[str, ...]
    actions: tuple[str, ...]
    properties: dict[str, frozenset[str]]
    """property -> the reasons that have it"""

    def has(self, reason: str, name: str) -> bool:
        """Whether ``reason`` has the property ``name``."""
        return reason in self.properties[name]

    def depth(self, layer: str | None) -> int:
        """The position of a layer, counted from the hardware. Without a layer it is the user's code."""
        return self.layers.index(layer) if layer in self.layers else len(self.layers) - 1


@functools.cache
def shipped_taxonomy() -> Taxonomy:
    """The taxonomy that ships with the program."""
    return read(shipped.folder("rules") / "taxonomy.yaml")


def read(path: Path) -> Taxonomy:
    """The taxonomy in the file ``path``."""
    return _taxonomy(parsed("taxonomy", path), path)


def _taxonomy(data: dict[str, Any], path: Path) -> Taxonomy:
    try:
        return Taxonomy(
            category_of={reason: category for category, reasons in data["categories"].items() for reason in reasons},
            layers=tuple(data["layers"]),
            kinds=tuple(data["kinds"]),
            severities=tuple(data["severities"]),
            actions=tuple(data["actions"]),
            properties=_properties(data, path),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RuleError(
            f"the taxonomy lacks a part: {error}",
            where=str(path),
            remedy="it needs categories, layers, kinds, severities, actions and properties",
        ) from None


def _properties(data: dict[str, Any], path: Path) -> dict[str, frozenset[str]]:
    known = {reason for reasons in data["categories"].values() for reason in reasons}
    said = data["properties"]
    for name, reasons in said.items():
        if name not in PROPERTIES:
            raise RuleError(
                f"unknown property {name!r} of reasons", where=str(path), remedy=f"use one of: {', '.join(PROPERTIES)}"
            )
        if strange := [reason for reason in reasons if reason not in known]:
            raise RuleError(
                f"the property {name} names {strange[0]!r}, which is not a reason",
                where=str(path),
                remedy="enter it under a category",
            )
    return {name: frozenset(said.get(name, ())) for name in PROPERTIES}
