"""A rule as commands print it."""

from __future__ import annotations

from typing import Any

from diagnose.knowledge.rules import Rule


def as_dict(rule: Rule) -> dict[str, Any]:
    fields = ("id", "family", "file", "at", "title", "pattern", "printed_by", "reference")
    own = (
        ("reason", "layer", "severity", "symptom", "action", "mitigation")
        if rule.family == "failures"
        else ("kind", "framework")
    )
    result = {name: getattr(rule, name) for name in (*fields, *own)}
    if rule.metrics:
        result["metrics"] = dict(rule.metrics)
    return result
