"""Requests to addresses that somebody typed in reach only what the operator allows."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from diagnose.errors import DiagnoseError
from service.net.client import Unreachable
from service.net.guarded import Outgoing, networks, shown
from tests.support.receivers import Receiver


@pytest.fixture(scope="module")
def outgoing() -> Outgoing:
    """One is made once: it reads the certificates of this machine."""
    return Outgoing()


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x", "https://127.1/x", "https://2130706433/", "https://0x7f000001/", "https://0/", "https://[::1]/",
        "https://10.0.0.1/", "https://192.168.1.1/", "https://172.16.0.1/", "https://169.254.169.254/latest/meta-data/",
        "https://100.64.0.1/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/", "https://[fec0::1]/", "https://[::ffff:127.0.0.1]/",
        "https://[2002:7f00:1::]/", "https://[64:ff9b::7f00:1]/", "https://224.0.0.1/", "https://255.255.255.255/",
        "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/", "HTTPS://example.com/",
        "//x/", "https://", "https:///x", "https://user:hunter2@example.com/", "https://example.com/#x",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: x", "https://ex\u00e4mple.com/", "https://example.com:99999/", "https://[::1/", "",
        "https://example.com\\@127.0.0.1/", "https://example.com/" + "x" * 2000,
    ],
)  # fmt: skip
def test_where_nothing_is_sent_to(url: str, outgoing: Outgoing) -> None:
    with pytest.raises(DiagnoseError) as refused:
        outgoing.check(url)
    assert "--webhooks-to" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://example.com/x?y=z", "https://93.184.215.14:8443/", "https://[2606:2800:21f::1]/"])
def test_public_addresses_are_fine(url: str, outgoing: Outgoing) -> None:
    outgoing.check(url)


def test_private_networks_that_are_allowed_and_no_others() -> None:
    outgoing = Outgoing(networks("10.20.0.0/16, 127.0.0.0/8"))
    outgoing.check("http://10.20.3.4/")
    outgoing.check("http://127.0.0.1:9/")
    with pytest.raises(DiagnoseError):
        outgoing.check("https://10.21.0.1/")
    assert not outgoing.may_reach(ipaddress.ip_address("::1"))
    with pytest.raises(DiagnoseError, match="--webhooks-to"):
        networks("10.0.0.0/99")


def post(outgoing: Outgoing, url: str, timeout_s: float = 5.0) -> int:
    async def work() -> int:
        try:
            return (await outgoing.post(url, {}, b"{}", timeout_s)).status
        finally:
            await outgoing.close()

    return asyncio.run(work())


def test_a_name_that_means_this_machine_is_found_out_when_it_is_looked_up() -> None:
    """``check`` cannot know: the name may be looked up otherwise a moment later. The connection goes to what was checked."""
    receiver = Receiver()
    try:
        with pytest.raises(Unreachable, match="see --webhooks-to"):
            post(Outgoing(networks("192.0.2.0/24")), f"http://localhost:{receiver.port}/")
        assert receiver.got == []
        assert post(Outgoing(networks("127.0.0.0/8,::1/128")), f"http://localhost:{receiver.port}/") == 204
        assert receiver.got[0][1]["host"] == f"localhost:{receiver.port}"
    finally:
        receiver.close()


def test_redirects_are_answers_and_not_followed() -> None:
    other = Receiver()
    receiver = Receiver(answers=lambda number: (302, {"location": other.url}))
    try:
        assert post(Outgoing(networks("127.0.0.0/8")), receiver.url) == 302
        assert other.got == []
    finally:
        receiver.close()
        other.close()


def test_one_that_never_answers_costs_its_time_and_no_more() -> None:
    receiver = Receiver(slow_s=3)
    try:
        with pytest.raises(Unreachable, match="no answer"):
            post(Outgoing(networks("127.0.0.0/8")), receiver.url, timeout_s=0.3)
    finally:
        receiver.close()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    receiver = Receiver()
    try:
        assert post(Outgoing(networks("127.0.0.0/8")), receiver.url) == 204
    finally:
        receiver.close()


def test_what_is_shown_of_an_address_holds_no_secret() -> None:
    assert shown("https://user:pw@hooks.slack.com/services/T0/B0/secret?x=y") == "https://hooks.slack.com/…"
    assert shown("https://[::1") == "…"
