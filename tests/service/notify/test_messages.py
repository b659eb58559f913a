"""What receivers read: CloudEvents as the library of that standard takes them, and messages that say nothing of their own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cloudevents.v1.http import from_http

from service.notify.messages import alertmanager, cloudevent, escaped, slack
from service.store.webhooks import Notice

HOSTILE = "\x1b[31m<!channel> <@U123> <https://evil|click> &lt; ```\n*all clear* _x_ ~y~ `rm -rf /` https://evil \u202e\x00"


def notice(kind: str = "job.failed", /, **more: Any) -> Notice:
    data = {
        "job": "train-7b", "attempt": 2, "category": "infrastructure", "reason": "ecc_error", "summary": HOSTILE,
        "mitigation": "Drain the node.", "nodes": ["gpu-13", "<!here>"],
        "root_cause": {"source": "<b>", "line": 7, "text": HOSTILE},
        **more,
    }  # fmt: skip
    return Notice("12.1700000000000", kind, 1.7e9, "job/train-7b", data)


def test_a_cloud_event_is_one_by_the_library_of_the_standard() -> None:
    kind, body = cloudevent(notice())
    event = from_http({"content-type": kind}, body)
    assert event["specversion"] == "1.0"
    assert event["type"] == "diagnose.job.failed"
    assert event["subject"] == "job/train-7b"
    assert event["time"] == "2023-11-14T22:13:20.000+00:00"
    assert event["source"].startswith("urn:diagnose:")
    assert event.data["root_cause"]["text"] == HOSTILE


@pytest.mark.parametrize("kind", ["job.failed", "job.alarm", "failure.regressed", "action.proposed", "test"])
def test_a_message_for_slack_says_what_happened(kind: str) -> None:
    more = {"kind": "restart", "state": "proposed", "who": "policy", "why": HOSTILE} if kind.startswith("action") else {}
    mime, body = slack(notice(kind, **more))
    message = json.loads(body)
    assert mime == "application/json"
    assert "train-7b" in message["text"]
    assert (message["link_names"], message["unfurl_links"]) == (False, False)


@pytest.mark.parametrize("kind", ["job.failed", "job.alarm", "failure.regressed", "action.proposed", "test"])
def test_an_alert_has_what_alertmanager_asks_for(kind: str) -> None:
    more = {"kind": "restart", "state": "proposed", "who": "policy"} if kind.startswith("action") else {}
    mime, body = alertmanager(notice(kind, **more, note="\ud800"))
    (alert,) = json.loads(body)
    assert mime == "application/json"
    assert alert["labels"]["training_job"] == "train-7b"
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in alert["labels"] | alert["annotations"])
    texts = [*alert["labels"].values(), *alert["annotations"].values()]
    assert all(isinstance(text, str) and text.isprintable() for text in texts)
    assert (alert["startsAt"], alert["endsAt"]) == ("2023-11-14T22:13:20.000+00:00", "2023-11-15T02:13:20.000+00:00")


def test_log_text_is_data_in_slack() -> None:
    text = json.loads(slack(notice())[1])["text"]
    assert "<" not in text
    assert ">" not in text.replace("&gt;", "")
    assert "&lt;!channel&gt;" in text
    assert "&amp;lt;" in text
    assert "https://" not in text
    assert text.count("```") == 2
    assert "all clear" in text
    assert "*all clear*" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert len(text.splitlines()) == 7, "a line of the log makes no line of the message"


def test_an_order_that_failed_says_why() -> None:
    message = json.loads(slack(notice("action.failed", kind="isolate", state="failed", who="slurm", result="no such node"))[1])
    assert ":wrench: Action failed" in message["text"]
    assert "no such node" in message["text"]


def test_a_gigantic_line_is_cut() -> None:
    assert len(escaped("&" * 10_000_000)) <= 600 * len("&amp;")
