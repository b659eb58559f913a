"""Whom a request was meant for, and where it comes from; what is said about who came in."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.types import Message

from service.edge import Edge, Hosts
from service.settings import Settings
from service.telemetry import Telemetry


def ask(
    settings: Settings | None = None,
    method: str = "GET",
    path: str = "/v1/jobs",
    scheme: str = "http",
    status: int = 200,
    telemetry: Telemetry | None = None,
    **headers: str,
) -> tuple[int, dict[bytes, bytes]]:
    """What the edge answers in front of an application that answers ``status`` to all."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    given = {"host": "127.0.0.1:8321", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "scheme": scheme, "headers": raw, "client": ("192.0.2.7", 1)}
    asyncio.run(Edge(app, settings or Settings(), telemetry or Telemetry())(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost", "LOCALHOST:1", "[::1]:8321", "localhost."])
def test_the_names_of_this_machine_are_ours(host: str) -> None:
    assert ask(host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8321", "10.0.0.1", "localhost.evil.example", "a:b"])
def test_a_page_whose_name_leads_here_is_refused(host: str) -> None:
    """DNS rebinding: the browser takes it for the page's own server."""
    assert ask(host=host)[0] == 421
    assert ask(host=host, method="POST")[0] == 421


def test_names_that_the_operator_gives_are_ours_too() -> None:
    settings = Settings(host="0.0.0.0", allowed_hosts="logs.example.org, .svc.cluster.local")
    for host in ("logs.example.org", "diagnose.ai.svc.cluster.local:8321", "10.20.0.7:8321", "[fd00::1]"):
        assert ask(settings, host=host)[0] == 200, host
    for host in ("example.org", "logs.example.org.evil.example", "svc.cluster.local.evil.example"):
        assert ask(settings, host=host)[0] == 421, host
    assert Hosts(Settings(allowed_hosts="*")).ours("anything")


def test_probes_need_no_name() -> None:
    assert ask(host="10.0.0.9", path="/healthz")[0] == 200
    assert ask(host="10.0.0.9", path="/readyz")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://[", "sec_fetch_site": "none"},
    ],
)
def test_what_a_page_of_another_site_sends_is_refused(headers: dict[str, str]) -> None:
    """A push of plain text needs no leave from us, says the browser: it is sent, and would be stored."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert ask(method=method, path="/v1/jobs/x/logs", content_type="text/plain", **headers)[0] == 403
    assert ask(**headers)[0] == 200, "who only reads is not answered to: the browser keeps it from the page"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8321"},
        {"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8321"},
        {"sec_fetch_site": "same-origin", "origin": "null"},
        {"sec_fetch_site": "none"},
    ],
)
def test_programs_and_our_own_pages_may_send(headers: dict[str, str]) -> None:
    assert ask(method="POST", **headers)[0] == 200


def test_a_page_of_ours_may_say_where_a_form_comes_from() -> None:
    """Without a referrer for its own site a browser calls the origin of a form "null", as it does that of a stranger's."""
    assert ask()[1][b"referrer-policy"] == b"same-origin"


def test_behind_a_proxy_the_page_has_the_name_that_the_operator_gave() -> None:
    settings = Settings(allowed_hosts="logs.example.org")
    assert ask(settings, method="POST", host="127.0.0.1:8321", origin="https://logs.example.org")[0] == 200
    assert ask(settings, method="POST", host="127.0.0.1:8321", origin="https://other.example.org")[0] == 403


def test_only_over_https_a_browser_is_told_to_stay_there() -> None:
    assert ask(scheme="https")[1][b"strict-transport-security"] == b"max-age=31536000"
    assert b"strict-transport-security" not in ask()[1]
    assert ask(host="evil.example")[1][b"x-content-type-options"] == b"nosniff"


def test_a_sign_in_that_failed_is_counted_and_logged_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    with caplog.at_level(logging.WARNING):
        ask(status=401, telemetry=telemetry)
        ask(status=401, telemetry=telemetry, authorization="Bearer dgn_secret")
        ask(status=200, telemetry=telemetry, authorization="Bearer dgn_good")
    text = telemetry.text().decode()
    assert 'diagnose_sign_ins_failed_total{token="none"} 1.0' in text
    assert 'diagnose_sign_ins_failed_total{token="wrong"} 1.0' in text
    assert "refused a sign-in from 192.0.2.7: GET /v1/jobs" in caplog.text
    assert "dgn_" not in caplog.text
