"""The words for what can go wrong: category, reason, layer; read from ``rules/taxonomy.yaml``, which a site may extend."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose import cache
from diagnose.errors import RuleError
from diagnose.knowledge import shipped


@dataclass(frozen=True, slots=True)
class Taxonomy:
    category_of: dict[str, str]
    """reason -> category"""
    layers: tuple[str, ...]
    """from the metal up; a fault in an earlier layer explains one in a later"""
    kinds: tuple[str, ...]
    severities: tuple[str, ...]
    actions: tuple[str, ...]


@functools.cache
def shipped_taxonomy() -> Taxonomy:
    """The taxonomy that ships with the program."""
    return read(shipped.folder("rules") / "taxonomy.yaml")


def read(path: Path) -> Taxonomy:
    """The taxonomy in the file ``path``."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read: {error}", where=str(path)) from None
    key = cache.key_of("taxonomy", text)
    known = cache.fetch("taxonomy", key)
    if known is None:
        from diagnose.knowledge import documents  # PyYAML takes a while to import; most runs find the answer in the cache

        known = json.dumps(documents.parse(text, str(path)).value).encode()
        cache.store("taxonomy", key, known)
    return _taxonomy(json.loads(known), path)


def _taxonomy(data: dict[str, Any], path: Path) -> Taxonomy:
    try:
        return Taxonomy(
            category_of={reason: category for category, reasons in data["categories"].items() for reason in reasons},
            layers=tuple(data["layers"]),
            kinds=tuple(data["kinds"]),
            severities=tuple(data["severities"]),
            actions=tuple(data["actions"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RuleError(
            f"the taxonomy lacks a part: {error}",
            where=str(path),
            remedy="it needs categories, layers, kinds, severities and actions",
        ) from None
