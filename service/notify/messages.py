"""Notice -> the body that a receiver reads: CloudEvents 1.0, a message for Slack, or an alert for Alertmanager.

Log text is data in all: it is JSON in the first and the last, and in the other the signs that Slack acts on are escaped
(mentions, links, marks).
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

from service.store.webhooks import Notice

_LONGEST = 600
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_TITLES = {
    "job.failed": ":red_circle: Job failed",
    "job.alarm": ":large_yellow_circle: Job needs a look",
    "failure.regressed": ":repeat: A resolved failure is back",
    "test": ":white_circle: A test of this webhook",
}

_ALERTS = {
    "job.failed": "TrainingJobFailed",
    "job.alarm": "TrainingJobNeedsALook",
    "failure.regressed": "ResolvedFailureIsBack",
    "test": "DiagnoseTest",
}
_AS_LABELS = ("job", "attempt", "category", "reason", "kind", "state")
_ALERT_S = 4 * 3600.0


def cloudevent(notice: Notice) -> tuple[str, bytes]:
    """(content type, body): structured mode."""
    event = {
        "specversion": "1.0",
        "id": notice.id,
        "source": f"urn:diagnose:{quote(socket.gethostname(), safe='')}",
        "type": f"diagnose.{notice.kind}",
        "subject": notice.subject,
        "time": datetime.fromtimestamp(notice.at, UTC).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": notice.data,
    }
    return "application/cloudevents+json", json.dumps(event).encode()


def slack(notice: Notice) -> tuple[str, bytes]:
    """(content type, body) for an incoming webhook of Slack, or of a program with the same format."""
    data = notice.data
    if notice.kind == "digest":
        return _plain("\n".join([f":memo: *{escaped(data['summary'])}*", *map(escaped, data["lines"]), *_address(data["url"])]))
    title = _TITLES.get(notice.kind) or f":wrench: Action {escaped(data.get('state'))}"
    lines = [f"{title}: *{escaped(data.get('job') or notice.subject)}*" + _attempt(data.get("attempt"))]
    if data.get("reason"):
        lines.append(f"{escaped(data.get('category'))} / {escaped(data['reason'])}")
    if data.get("kind"):
        lines.append(f"{escaped(data['kind'])}, by {escaped(data.get('who'))}")
    for words in (data.get("summary"), data.get("why"), data.get("result"), data.get("mitigation")):
        if words:
            lines.append(escaped(words))
    if data.get("unconfirmed") and data.get("state") == "proposed":
        lines.append(f"Waits for a person, because only the log says so: {escaped(data['unconfirmed'])}")
    if data.get("nodes"):
        lines.append("Nodes: " + ", ".join(escaped(node) for node in data["nodes"]))
    root = data.get("root_cause")
    if root:
        lines.append(f"{escaped(root['source'])}, line {root['line']}:")
        lines.append(f"```{escaped(root['text'])}```")
    return _plain("\n".join(lines))


def _address(url: object) -> list[str]:
    """A link to our own page, as the service or the command was told where it is."""
    return [f"<{url}>"] if isinstance(url, str) and re.fullmatch(r"https?://[^\s<>|]+", url) else []


def _plain(text: str) -> tuple[str, bytes]:
    message = {"text": text, "link_names": False, "parse": "none", "unfurl_links": False, "unfurl_media": False}
    return "application/json", json.dumps(message).encode()


def alertmanager(notice: Notice) -> tuple[str, bytes]:
    """(content type, body) for ``POST /api/v2/alerts`` of Alertmanager. The alert is over after four hours."""
    data = notice.data
    labels = {
        "alertname": _ALERTS.get(notice.kind) or "DiagnoseAction",
        "service": "diagnose",
        "severity": "critical" if notice.kind == "job.failed" else "warning",
        "subject": notice.subject,
        **{f"training_{name}" if name == "job" else name: data.get(name) for name in _AS_LABELS},
    }
    root = data.get("root_cause")
    annotations = {
        "summary": data.get("summary") or data.get("why") or notice.kind,
        "mitigation": data.get("mitigation"),
        "nodes": ", ".join(map(str, data.get("nodes") or ())),
        "root_cause": f"{root['source']}, line {root['line']}: {root['text']}" if root else None,
    }
    alert = {
        "labels": {name: _one_line(value) for name, value in labels.items() if value not in (None, "")},
        "annotations": {name: _one_line(value) for name, value in annotations.items() if value},
        "startsAt": _moment(notice.at),
        "endsAt": _moment(notice.at + _ALERT_S),
    }
    return "application/json", json.dumps([alert]).encode()


def _one_line(value: object) -> str:
    return UNSEEN.sub(" ", str(value))[:_LONGEST].encode("utf-8", "replace").decode()


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def escaped(text: object) -> str:
    """``text`` without anything that Slack acts on: mention, link, mark, end of a code block, line end."""
    plain = UNSEEN.sub(" ", str(text))[:_LONGEST]
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign, alike in (("`", "\u02cb"), ("*", "\u2217"), ("~", "\u223c"), ("_", "\uff3f"), ("://", ":\u2215\u2215")):
        plain = plain.replace(sign, alike)
    return plain


def _attempt(number: object) -> str:
    return f", attempt {number}" if isinstance(number, int) and number > 1 else ""


FORMATS: dict[str, Callable[[Notice], tuple[str, bytes]]] = {
    "cloudevents": cloudevent,
    "slack": slack,
    "alertmanager": alertmanager,
}
