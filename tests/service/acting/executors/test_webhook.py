"""The executor that posts orders, against real HTTP servers: what it sends, and what it makes of each kind of answer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from diagnose.errors import DiagnoseError
from service.acting.executors.executor import KINDS, Order, Outcome
from service.acting.executors.webhook import Webhook
from service.net import signing
from service.net.guarded import networks

KEY = "0123456789abcdef0123456789abcdef"
SECRET = signing.new_secret()
LOOPBACK = networks("127.0.0.0/8")
ORDER = Order(
    key=KEY,
    kind="isolate_and_restart",
    job="8812",
    attempt=1,
    labels={"cluster": "alps"},
    nodes=("gpu-1",),
    avoid=("gpu-2",),
    restart_from={"step": 7},
    skip_batches=(3, 9),
    why="Xid 79",
)


@contextmanager
def server(answer: bytes | Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A raw server: one request a connection, the answer as given, whatever HTTP thinks of it."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(65536)
                    head, _, body = head.partition(b"\r\n\r\n")
                    length = int(next(one.split(b":")[1] for one in head.split(b"\r\n") if one.startswith(b"content-length")))
                    while len(body) < length:
                        body += connection.recv(65536)
                    got.append(head + b"\r\n\r\n" + body)
                    if callable(answer):
                        answer(connection)
                    else:
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/act/secret-path", got
        listening.shutdown(socket.SHUT_RDWR)


def says(status: str, body: Any = None, *headers: str) -> bytes:
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(content)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def webhook(url: str, **more: Any) -> Webhook:
    return Webhook(url, secret_env="S", environment={"S": SECRET}, private=LOOPBACK, **{"timeout_s": 5.0, **more})


def carry_out(url: str, **how: bool) -> Outcome:
    return asyncio.run(webhook(url).carry_out(ORDER, **how))


def test_the_order_arrives_signed_with_its_key() -> None:
    with server(says("200 OK", {"state": "succeeded", "what": "drained gpu-1"})) as (url, got):
        assert carry_out(url) == Outcome("succeeded", "drained gpu-1")
        carry_out(url)
    head, _, body = got[0].partition(b"\r\n\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head.decode().split("\r\n")[1:])
    }
    assert head.startswith(b"POST /act/secret-path HTTP/1.1\r\n")
    assert headers["idempotency-key"] == KEY
    assert headers["webhook-id"] == f"order_{KEY}"
    assert json.loads(body) == {"schema": "diagnose.order/1", "order": ORDER.as_dict()}
    standardwebhooks.Webhook(SECRET).verify(body, headers)  # their library, not ours
    again = got[1].partition(b"\r\n\r\n")[0].decode().lower()
    assert f"idempotency-key: {KEY}" in again


@pytest.mark.parametrize("state", ["succeeded", "failed", "unknown"])
@pytest.mark.parametrize(
    ("told", "isolated"),
    [(["gpu-1"], ("gpu-1",)), ([], ()), (None, None), ("gpu-1", None), (["gpu-1", 7, None], ("gpu-1",))],
)
def test_which_nodes_it_has_taken_out(state: str, told: Any, isolated: tuple[str, ...] | None) -> None:
    with server(says("200 OK", {"state": state, "what": "x", "isolated": told})) as (url, _):
        assert carry_out(url).isolated == isolated


HTML = b"<html><h1>Welcome to the proxy"


@pytest.mark.parametrize(
    ("answer", "state", "may_retry", "part"),
    [
        pytest.param(says("204 No Content"), "succeeded", False, "has done it", id="204"),
        pytest.param(says("200 OK", {"state": "failed", "what": "no such job"}), "failed", False, "no such job", id="failed"),
        pytest.param(says("200 OK", {"state": "failed", "may_retry": True}), "failed", True, "", id="failed-for-now"),
        pytest.param(says("200 OK", {"state": "running"}), "unknown", True, "is at it", id="running"),
        pytest.param(says("200 OK", {"state": "unknown"}), "unknown", True, "", id="it-does-not-know"),
        pytest.param(says("202 Accepted"), "unknown", True, "is at it", id="202"),
        pytest.param(says("409 Conflict", {"what": "the same key is under way"}), "unknown", True, "under way", id="409"),
        pytest.param(says("200 OK", HTML), "unknown", False, "does not say", id="a-page"),
        pytest.param(says("200 OK"), "unknown", False, "does not say", id="200-and-nothing"),
        pytest.param(says("200 OK", ["succeeded"]), "unknown", False, "does not say", id="a-list"),
        pytest.param(says("200 OK", {"state": True}), "unknown", False, "does not say", id="no-state"),
        pytest.param(says("200 OK", b'{"state": "succeeded", "wh'), "unknown", False, "does not say", id="half-a-document"),
        pytest.param(says("200 OK", b"[" * 60_000), "unknown", False, "does not say", id="deep"),
        pytest.param(says("200 OK", b" " * 70_000 + b'{"state": "succeeded"}'), "unknown", False, "", id="endless"),
        pytest.param(says("401 Unauthorized"), "failed", True, "check the secret", id="401"),
        pytest.param(says("403 Forbidden"), "failed", True, "check the secret", id="403"),
        pytest.param(says("400 Bad Request", {"what": "what kind?"}), "failed", False, "what kind?", id="400"),
        pytest.param(says("404 Not Found", HTML), "failed", False, "does not take it", id="404"),
        pytest.param(says("410 Gone"), "failed", False, "does not take it", id="410"),
        pytest.param(says("422 Unprocessable", {"what": "other order"}), "failed", False, "other order", id="422"),
        pytest.param(says("429 Too Many", None, "retry-after: 7"), "failed", True, "cannot do it now", id="429"),
        pytest.param(says("503 Unavailable"), "failed", True, "cannot do it now", id="503"),
        pytest.param(says("500 Oops", {"what": "half way"}), "unknown", True, "half way", id="500"),
        pytest.param(says("502 Bad Gateway", HTML), "unknown", True, "failed at it", id="502"),
        pytest.param(says("302 Found", None, "location: http://127.0.0.1/"), "failed", False, "points elsewhere", id="302"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "unknown", True, "does not answer", id="half-an-answer"
        ),
        pytest.param(b"", "unknown", True, "does not answer", id="hung-up"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "unknown", True, "does not answer", id="no-http"),
    ],
)
def test_what_its_answer_means(answer: bytes, state: str, may_retry: bool, part: str) -> None:
    with server(answer) as (url, _):
        outcome = carry_out(url)
    assert (outcome.state, outcome.may_retry) == (state, may_retry), outcome
    assert part in outcome.what
    assert "secret-path" not in outcome.what


def test_when_it_wants_to_be_asked_again() -> None:
    with server(says("429 Too Many", None, "retry-after: 7")) as (url, _):
        assert carry_out(url).details == {"retry_after_s": 7.0}


def test_its_sentence_is_a_strangers() -> None:
    with server(says("200 OK", {"state": "failed", "what": "a\x1b[31m\n\0b" + "x" * 10_000})) as (url, _):
        outcome = carry_out(url)
    assert outcome.what.startswith("a [31m b")
    assert outcome.what.isprintable()
    assert len(outcome.what) == 500


def test_nobody_listens_so_nothing_was_done() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = carry_out(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert (outcome.state, outcome.may_retry) == ("failed", True)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _ in range(100):
        try:
            connection.sendall(b" ")
        except OSError:
            return
        time.sleep(0.05)


@pytest.mark.parametrize("slow", [pytest.param(lambda _: time.sleep(3), id="silent"), pytest.param(drip, id="drips")])
def test_an_answer_that_does_not_come_in_time(slow: Callable[[socket.socket], None]) -> None:
    with server(slow) as (url, got):
        outcome = asyncio.run(webhook(url, timeout_s=0.4).carry_out(ORDER))
    assert (outcome.state, outcome.may_retry) == ("unknown", True)
    assert len(got) == 1


def test_a_dry_run_sends_nothing() -> None:
    with server(says("204 No Content")) as (url, got):
        outcome = carry_out(url, dry_run=True)
    assert outcome.what.startswith("would have: posted isolate_and_restart to http://127.0.0.1")
    assert got == []


def test_where_orders_may_not_go() -> None:
    with pytest.raises(DiagnoseError, match="not public"):
        Webhook("https://127.0.0.1/", secret_env="S")
    outcome = asyncio.run(
        Webhook("http://localhost:9/", secret_env="S", environment={"S": SECRET}, private=networks("10.0.0.0/8")).carry_out(
            ORDER
        )
    )
    assert (outcome.state, "may not go" in outcome.what) == ("failed", True)


@pytest.mark.parametrize(
    ("held", "part"),
    [({}, "S is not set"), ({"S": "hunter2"}, "this secret cannot be used to sign"), ({"S": "a b"}, "one printable word")],
)
def test_without_a_secret_nothing_is_sent(held: dict[str, str], part: str) -> None:
    with server(says("204 No Content")) as (url, got):
        by = Webhook(url, secret_env="S", environment=held, private=LOOPBACK)
        outcome, problems = asyncio.run(by.carry_out(ORDER)), asyncio.run(by.check())
    assert outcome.state == "failed"
    assert part in outcome.what
    assert "hunter2" not in outcome.what
    assert problems == [outcome.what]
    assert got == []


def test_a_secret_in_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with server(says("204 No Content")) as (url, got):
        by = Webhook(url, secret_file=path, private=LOOPBACK)
        assert asyncio.run(by.carry_out(ORDER)).state == "failed"
        path.write_text(SECRET + "\n")
        assert asyncio.run(by.carry_out(ORDER)).state == "succeeded"
    assert len(got) == 1


def test_kinds() -> None:
    with server(says("204 No Content")) as (url, got):
        by = webhook(url)
        assert by.kinds == KINDS
        assert asyncio.run(by.carry_out(Order(KEY, "fix_code", "8812", 1))).state == "failed"
    assert got == []
