"""What may be done about a reason: the table in ``rules/policy.yaml``."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose import cache, shipped
from diagnose.errors import RuleError
from diagnose.taxonomy import Taxonomy, shipped_taxonomy


@dataclass(frozen=True, slots=True)
class Remedy:
    """The usual action for a reason, with the sentence that says why."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Policy:
    actions: dict[str, Remedy]
    """reason -> action"""


@functools.cache
def shipped_policy() -> Policy:
    """The policy that ships with the program."""
    return read(shipped.folder("rules") / "policy.yaml")


def read(path: Path, taxonomy: Taxonomy | None = None) -> Policy:
    """The policy in the file ``path``."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read: {error}", where=str(path), remedy="give a readable YAML file") from None
    key = cache.key_of("policy", text)
    known = cache.fetch("policy", key)
    if known is None:
        from diagnose import documents  # PyYAML takes a while to import; most runs find the answer in the cache

        known = json.dumps(documents.parse(text, str(path)).value).encode()
        cache.store("policy", key, known)
    return _policy(json.loads(known), path, taxonomy or shipped_taxonomy())


def _policy(data: Any, path: Path, taxonomy: Taxonomy) -> Policy:
    table = data.get("actions") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise RuleError("a policy is a mapping with actions", where=str(path), remedy="see docs/diagnosis.md")
    actions = {}
    for reason in taxonomy.category_of:
        entry = table.get(reason)
        if not isinstance(entry, dict) or not isinstance(entry.get("why"), str) or entry.get("kind") not in taxonomy.actions:
            raise RuleError(
                f"no action for the reason {reason}",
                where=str(path),
                remedy=f"add   {reason}: {{kind: …, why: …}}   with a kind of: {', '.join(taxonomy.actions)}",
            )
        actions[reason] = Remedy(entry["kind"], entry["why"])
    for reason in table:
        if reason not in actions:
            raise RuleError(f"unknown reason {reason!r}", where=str(path), remedy="use one of rules/taxonomy.yaml")
    return Policy(actions)
