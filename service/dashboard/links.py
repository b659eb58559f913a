"""Links out of the pages, to a scheduler, Grafana, W&B: templates of the settings -> addresses for one job or node.

``Grafana=https://grafana/d/x?var-node={node}&from={from_ms}&to={to_ms} W&B=https://wandb.ai/t/p/runs/{label:wandb}``: a word
each, a name and a template. A link whose values are not all known is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

_FIELD = re.compile(r"\{([a-z_]+(?::[^{}]+)?)\}")


class Link(NamedTuple):
    name: str
    href: str


def of_job(templates: str, job: Mapping[str, object], attempt: Mapping[str, object], now: float) -> list[Link]:
    """For an attempt of a job. Fields: job, attempt, user, cluster, from, to (seconds), from_ms, to_ms, and label:NAME."""
    labels = job.get("labels")
    begin, end = attempt["started_at"], attempt.get("ended_at") or now
    values: dict[str, object] = {f"label:{name}": value for name, value in labels.items()} if isinstance(labels, dict) else {}
    values |= {"job": job["name"], "attempt": attempt["number"], "user": job.get("user"), "cluster": job.get("cluster")}
    return _filled(templates, values | _times(begin, end))


def of_node(templates: str, node: str, since: float, now: float) -> list[Link]:
    """For a node. Fields: node, from, to, from_ms, to_ms."""
    return _filled(templates, {"node": node} | _times(since, now))


def _times(begin: object, end: object) -> dict[str, object]:
    assert isinstance(begin, (int, float))
    assert isinstance(end, (int, float))
    return {"from": int(begin), "to": int(end), "from_ms": int(begin * 1000), "to_ms": int(end * 1000)}


def _filled(templates: str, values: Mapping[str, object]) -> list[Link]:
    """A job's page shows links about jobs, a node's those about nodes: a template names what it is about."""
    found = []
    for word in templates.split():
        name, _, template = word.partition("=")
        fields = _FIELD.findall(template)
        if fields and all(values.get(field) not in (None, "") for field in fields) and not set(fields) <= _TIMES:
            href = _FIELD.sub(lambda match: quote(str(values[match[1]]), safe=""), template)
            found.append(Link(name.replace("_", " "), href))
    return found


_TIMES = {"from", "to", "from_ms", "to_ms"}
