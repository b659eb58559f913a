"""One request to one server: what is said of an answer, and of the lack of one."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from service.net.client import Answer, Bounds, Client, Unreachable

BOUNDS = Bounds(5.0, most=1000)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def request_of(connection: socket.socket) -> bytes:
    """A whole request: a connection that is closed with a part of it unread would be reset, which says something else."""
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    said = re.search(rb"(?i)content-length: (\d+)", head)
    missing = int(said[1]) - len(body) if said else 0
    while missing > 0 and (more := connection.recv(65536)):
        data, missing = data + more, missing - len(more)
    return data


@contextmanager
def server(says: bytes, *, closes: bool = True) -> Iterator[tuple[int, list[bytes]]]:
    """Answers each connection with these bytes, whatever was asked; what it read is kept."""
    got: list[bytes] = []
    door = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = door.accept()
            except OSError:
                return
            got.append(request_of(connection))
            connection.sendall(says)
            held.append(connection)
            if closes:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield door.getsockname()[1], got
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        for connection in held:
            connection.close()


def ask(port: int, path: str = "/", bounds: Bounds = BOUNDS, method: str = "POST", body: bytes | None = b"{}") -> Answer:
    return asyncio.run(Client().ask(method, f"http://127.0.0.1:{port}{path}", bounds, {"x-a": "b"}, body))


def test_what_is_sent_is_what_was_given() -> None:
    with server(OK) as (port, got):
        assert ask(port, "/a;b=1/c;d?e=f&g").status == 200
        ask(port, method="DELETE", body=None)
        ask(port, method="POST", body=None)
    first, deleted, posted = ([line.lower() for line in one.split(b"\r\n")] for one in got)
    assert first[0] == b"post /a;b=1/c;d?e=f&g http/1.1"
    assert {b"x-a: b", b"content-length: 2", b"host: 127.0.0.1:%d" % port} <= set(first)
    assert not any(line.startswith((b"content-length", b"transfer-encoding")) for line in deleted)
    assert b"content-length: 0" in posted


def test_an_answer_is_read_up_to_its_bound() -> None:
    with server(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n" + b"a" * 12) as (port, _):
        assert ask(port, bounds=Bounds(5.0, most=12)) == Answer(200, b"a" * 12)
        assert ask(port, bounds=Bounds(5.0, most=11)) == Answer(200, b"a" * 11, cut=True)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("nan", None), ("9999999", None)],
)
def test_when_it_wants_to_be_asked_again(said: str, seconds: float | None) -> None:
    with server(f"HTTP/1.1 503 Busy\r\nretry-after: {said}\r\ncontent-length: 0\r\n\r\n".encode()) as (port, _):
        answer = ask(port)
    assert (answer.retry_after_s, answer.may_go_better) == (seconds, True)


@pytest.mark.parametrize(
    ("body", "value", "text"),
    [
        pytest.param(b'{"a": 1}', {"a": 1}, '{"a": 1}', id="json"),
        pytest.param(b'\xef\xbb\xbf{"a": "\xff"}', {"a": "\ufffd"}, '\ufeff{"a": "\ufffd"}', id="mark-and-stray-byte"),
        pytest.param(b"<p>\n  Bad\tgateway</p>", None, "<p> Bad gateway</p>", id="page"),
        pytest.param(b"[" * 100_000, None, "[" * 200, id="deep"),
    ],
)
def test_what_an_answer_says(body: bytes, value: object, text: str) -> None:
    answer = Answer(200, body)
    assert answer.json() == value
    assert answer.text == text


def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


@pytest.mark.parametrize(
    ("says", "why"),
    [
        pytest.param(b"", "disconnected without sending a response", id="hung-up"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal status line", id="no-http"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "without sending complete message body", id="half"),
    ],
)
def test_an_answer_that_is_none_may_have_been_heeded(says: bytes, why: str) -> None:
    with server(says) as (port, _), pytest.raises(Unreachable, match=why) as told:
        ask(port)
    assert told.value.sent


def test_without_a_connection_nothing_was_sent() -> None:
    with pytest.raises(Unreachable, match=r"^Connection refused$") as told:
        ask(closed())
    assert not told.value.sent


@pytest.mark.parametrize("bounds", [Bounds(0.2, most=10), Bounds(5.0, most=10, silence_s=0.2)], ids=["whole", "silence"])
def test_who_keeps_silent_may_have_heard(bounds: Bounds) -> None:
    with server(b"HTTP/1.1 200 OK\r\n", closes=False) as (port, got):
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as told:
            ask(port, bounds=bounds)
        assert len(got) == 1
    assert told.value.sent


def test_a_hand_shake_that_never_ends_has_sent_nothing() -> None:
    client = Client(tls=ssl.create_default_context())
    with server(b"", closes=False) as (port, _), pytest.raises(Unreachable, match="no answer") as told:
        asyncio.run(client.ask("POST", f"https://127.0.0.1:{port}/", Bounds(0.3, most=10), body=b"{}"))
    assert not told.value.sent


@pytest.mark.parametrize("keeps", [False, True])
def test_connections_are_kept_only_where_it_is_wanted(keeps: bool) -> None:
    """The server leaves its connections open and answers once on each: a second request on one waits in vain."""
    with server(OK, closes=False) as (port, got):

        async def twice() -> int:
            client = Client(keeps=keeps)
            try:
                for _ in range(2):
                    await client.ask("GET", f"http://127.0.0.1:{port}/", Bounds(0.3, most=10))
            except Unreachable:
                return 1
            finally:
                await client.close()
            return 2

        assert asyncio.run(twice()) == (1 if keeps else 2)
        assert len(got) == (1 if keeps else 2)


def test_an_address_that_may_not_be_reached_is_not_connected_to() -> None:
    client = Client(may_reach=lambda address: not address.is_loopback, closed=": ask somebody")
    with server(OK) as (port, got):
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1, where requests may not go: ask somebody") as told:
            asyncio.run(client.ask("GET", f"http://127.0.0.1:{port}/", BOUNDS))
        assert (got, told.value.sent) == ([], False)


@pytest.mark.parametrize("url", ["https://127.0.0.1/", "ftp://x/", "/x", "http:///x"])
def test_what_is_not_its_to_send_to(url: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        asyncio.run(Client().ask("GET", url, BOUNDS))
