"""Who only takes room: heads without an end, requests that never come, and many connections. Against a real service."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import doors
from service.doors import owner_is_ours
from tests.support.live import until
from tests.support.servers import Server

pytestmark = pytest.mark.server
SLOWEST_S = 0.1 if os.environ.get("DIAGNOSE_CALM") else 0.5
"""what the median of /healthz may take; other programs on the machine count too"""

_CHUNKED = b"POST /v1/jobs/stranger/logs?source=s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    quick = {"DIAGNOSE_SERVE_HEAD_S": "2", "DIAGNOSE_SERVE_REQUEST_S": "2", "DIAGNOSE_SERVE_MOST_STRANGERS_ADDRESS": "200"}
    with Server(tmp_path_factory.mktemp("doors") / "data", **quick) as running:
        yield running


def connect(server: Server) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def told(made: socket.socket) -> bytes:
    """All that the service says before it closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := made.recv(65536):
            found += piece
    made.close()
    return found


def health(server: Server, times: int = 30) -> list[float]:
    took = []
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for _ in range(times):
            began = time.monotonic()
            assert client.get("/healthz").status_code == 200
            took.append(time.monotonic() - began)
            time.sleep(0.01)
    return sorted(took)


def counted(server: Server, why: str) -> float:
    for line in server.client.get("/metrics").text.splitlines():
        if line.startswith(f'diagnose_connections_refused_total{{why="{why}"}}'):
            return float(line.split()[-1])
    return 0.0


def memory(server: Server) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_a_head_without_an_end_is_cut_off_and_nobody_else_notices(server: Server) -> None:
    before, refused, stop = memory(server), counted(server, "head_too_large"), threading.Event()
    sent = [0]

    def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(server) as made:
                made.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-endless: ")
                for _ in range(400):
                    made.sendall(b"a" * 65536)
                    sent[0] += 65536

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    took = health(server)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert sent[0] > 1 << 20
    assert took[len(took) // 2] < SLOWEST_S
    assert counted(server, "head_too_large") > refused
    assert memory(server) < before + (50 << 20)


def test_fields_behind_a_body_without_an_end_are_cut_off_and_nobody_else_notices(server: Server) -> None:
    """They cost as much as a head without an end: two strangers once took twelve gigabytes in half a minute."""
    before, refused, stop = memory(server), counted(server, "head_too_large"), threading.Event()

    def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(server) as made:
                made.sendall(_CHUNKED + b"0\r\n")
                while not stop.is_set():
                    made.sendall(b"a: b\r\n" * 50_000)

    strangers = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
    for one in strangers:
        one.start()
    took = health(server)
    stop.set()
    for one in strangers:
        one.join(20)
    assert took[len(took) // 2] < SLOWEST_S
    assert memory(server) - before < 50_000_000
    assert counted(server, "head_too_large") > refused


@pytest.mark.parametrize("begun", [b"0\r\na: ", b"0\r\n", b"5;x="])
def test_what_has_no_end_behind_a_head_is_cut_off(server: Server, begun: bytes) -> None:
    """One field, its name, what is said of a chunk: the parser tells of each when it is whole, and gathers until then."""
    before, refused = memory(server), counted(server, "head_too_large")
    with connect(server) as made:
        made.sendall(_CHUNKED + begun)
        with pytest.raises(ConnectionError):
            made.sendall(b"b" * 64_000_000)
    assert counted(server, "head_too_large") == refused + 1
    assert memory(server) - before < 30_000_000


def test_fields_between_requests_are_counted_for_each_alone(server: Server) -> None:
    """Many requests on one connection, each far below the limit, however much comes at once."""
    one = (
        _CHUNKED.replace(b"/v1/jobs/stranger/logs?source=s", b"/healthz")
        + b"1;x=y\r\na\r\n0\r\na: "
        + b"b" * 3000
        + b"\r\n\r\n"
    )
    with connect(server) as made:
        writing = threading.Thread(target=made.sendall, args=(one * 300,), daemon=True)
        writing.start()
        found = b""
        while found.count(b"HTTP/1.1 405") < 300:
            piece = made.recv(65536)
            assert piece, "it was closed"
            found += piece
        writing.join(20)


def test_a_large_chunk_is_a_body_and_no_head(server: Server) -> None:
    log = b"a quiet line of a log that goes on and on\n" * 60_000
    answer = server.client.post("/v1/jobs/large/logs", params={"source": "s", "offset": 0}, content=iter([log]))
    assert (answer.status_code, answer.json()["next_offset"]) == (200, len(log))


def test_fields_behind_a_body_are_no_fields_of_its_head(server: Server) -> None:
    with connect(server) as made:
        made.sendall(
            _CHUNKED + b"2\r\na\n\r\n0\r\nContent-Encoding: gzip\r\n\r\n" + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        found = b""
        while found.count(b"HTTP/1.1 200") < 2:
            found += made.recv(65536)


def test_a_body_in_chunks_of_a_byte_is_read_whole(server: Server) -> None:
    log = b"".join(b"line %d\n" % number for number in range(2000))
    answer = server.client.post(
        "/v1/jobs/scraps/logs", params={"source": "s", "offset": 0}, content=(bytes([one]) for one in log)
    )
    assert (answer.status_code, answer.json()["next_offset"]) == (200, len(log))


def test_scraps_of_a_body_that_was_answered_are_not_listened_to(server: Server) -> None:
    refused = counted(server, "body_not_wanted")
    with connect(server) as made, contextlib.suppress(ConnectionError):
        made.sendall(_CHUNKED.replace(b"/v1/jobs/stranger/logs?source=s", b"/no/such/place"))
        assert made.recv(12) == b"HTTP/1.1 404"
        for _ in range(200):
            made.sendall(b"1\r\na\r\n" * 1000)
            time.sleep(0.01)
    assert counted(server, "body_not_wanted") == refused + 1


def test_what_is_no_http_is_complained_of_now_and_then(server: Server) -> None:
    def complaints() -> int:
        return server.log.count("Invalid HTTP request") + server.log.count("upgrade")

    before = complaints()
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for _ in range(30):
        for said in (b"\x16\x03\x01 no request\r\n\r\n", upgrade):
            with connect(server) as made:
                made.sendall(said)
                assert made.recv(9) == b"HTTP/1.1 "
    assert complaints() - before <= 4


def test_a_head_that_is_too_large_is_told_so_however_it_comes(server: Server) -> None:
    for head in (
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x: 1\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ):
        made = connect(server)
        with contextlib.suppress(ConnectionError):
            made.sendall(head)
        assert b" 431 " in told(made)[:40]
    made = connect(server)
    made.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: " + b"a" * 60_000 + b"\r\n\r\n")
    assert b" 200 " in told(made)[:40]


def test_a_head_that_does_not_come_is_not_waited_for(server: Server) -> None:
    for begun in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"):
        made = connect(server)
        made.sendall(begun)
        began = time.monotonic()
        assert b" 408 " in told(made)[:40]
        assert 1 < time.monotonic() - began < 8
    # One that comes byte by byte is not waited for either.
    made = connect(server)
    began = time.monotonic()
    with contextlib.suppress(OSError):
        for byte in b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 500:
            made.sendall(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - began < 8


def test_a_connection_that_is_kept_for_the_next_request_is_not_closed(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").status_code == 200
        time.sleep(4)
        kept = client.get("/healthz")
        assert kept.status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for_from_a_stranger(server: Server) -> None:
    made = connect(server)
    made.sendall(
        b"POST /ui/sign-in HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n"
        b"content-length: 1000\r\n\r\ntoken="
    )
    began = time.monotonic()
    told(made)
    assert time.monotonic() - began < 8


def test_who_is_known_may_stream_a_log_for_as_long_as_it_is_written(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(5):
            time.sleep(1)
            yield f"line {number}\n".encode()

    answer = server.client.post("/v1/jobs/streamed/logs", params={"source": "s"}, content=pieces())
    assert answer.status_code == 200
    assert answer.json()["received"] == 35


def test_two_thousand_half_open_requests_leave_room_for_others(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip(f"the kernel allows {hard} open files; the test needs 5,000 (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    held: list[Any] = []
    try:
        for _ in range(2000):
            made = connect(server)
            with contextlib.suppress(OSError):
                made.sendall(b"POST /v1/jobs/x/logs HTTP/1.1\r\nhost: localhost\r\n")
            held.append(made)
        took = health(server)
        assert took[len(took) // 2] < SLOWEST_S
        server.push("beside", b"all is well\n", source="s", offset=0)
        time.sleep(4)
        text = server.client.get("/metrics").text
        strangers = next(line for line in text.splitlines() if line.startswith("diagnose_strangers "))
        assert float(strangers.split()[-1]) < 250
        assert counted(server, "too_many") + counted(server, "head_too_slow") >= 1700
    finally:
        for made in held:
            made.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- tokens


def test_who_revokes_the_last_token_does_not_open_the_door_and_a_stream_ends_with_its_token(
    tmp_path: Path, diagnose: Any
) -> None:
    data = tmp_path / "data"
    with Server(data) as running:
        secret = diagnose("tokens", "create", "kim", "--role", "admin", "--data", str(data)).stdout.split()[-1]
        deadline = time.monotonic() + 20
        while running.client.get("/v1/jobs").status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        mine = {"authorization": f"Bearer {secret}"}
        with httpx.stream("GET", f"{running.url}/v1/events", headers=mine, timeout=40) as stream:
            assert stream.status_code == 200
            diagnose("tokens", "revoke", "kim", "--data", str(data))
            began = time.monotonic()
            for _ in stream.iter_raw():
                pass
            assert time.monotonic() - began < 20
        assert running.client.get("/v1/jobs").status_code == 401
        assert running.client.get("/v1/jobs", headers=mine).status_code == 401
        until(lambda: "refused a sign-in from 127.0.0.1" in running.log)


def test_behind_a_proxy_that_is_trusted_scheme_and_address_are_the_clients(tmp_path: Path, diagnose: Any) -> None:
    data = tmp_path / "data"
    secret = diagnose("tokens", "create", "kim", "--role", "read", "--data", str(data)).stdout.split()[-1]
    through = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9, 127.0.0.1", "host": "logs.example.org"}
    for trusted in (True, False):
        words = ["--allowed-hosts", "logs.example.org", *(["--trusted-proxies", "127.0.0.0/8"] if trusted else [])]
        with Server(data, *words) as running:
            with httpx.Client(base_url=running.url) as client:
                answer = client.post("/ui/sign-in", data={"token": secret, "next": "jobs"}, headers=through)
                assert answer.status_code == 303
                assert ("secure" in answer.headers["set-cookie"].lower()) is trusted
                assert ("strict-transport-security" in answer.headers) is trusted
                client.cookies.clear()
                away = client.get("/ui/jobs", headers=through)
                assert away.headers["location"].startswith("https://" if trusted else "http://")
                assert client.get("/v1/jobs", headers=through).status_code == 401
            address = "203.0.113.9" if trusted else "127.0.0.1"
            until(lambda running=running, address=address: f"refused a sign-in from {address}" in running.log)
        (data.parent / "data.log").unlink()


# --- which user of this machine it is


@pytest.mark.parametrize(("family", "host", "to"), [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    (socket.AF_INET6, "::1", "::1"),
    (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
])  # fmt: skip
@pytest.mark.parametrize("told", [owner_is_ours, doors._is_ours_by_the_tables])
def test_a_connection_of_our_own_user_is_known_and_one_without_an_owner_is_not(
    told: Callable[[Any, Any], bool], family: int, host: str, to: str
) -> None:
    listening = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET)
    client = socket.socket(family)
    with listening, client:
        listening.bind((to, 0))
        listening.listen()
        client.connect((host, listening.getsockname()[1]))
        accepted, (address, port, *_) = listening.accept()
        with accepted:
            ends = (address, port), accepted.getsockname()[:2]
            assert told(*ends)
            assert not told((address, port ^ 1), ends[1])
            client.close()  # it may have been anybody's
            assert not told(*ends)


_ASK = "import sys, urllib.request as r\ntry: print(r.urlopen(sys.argv[1]).status)\nexcept r.HTTPError as e: print(e.code)"


@pytest.mark.server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_service_without_a_token_is_open_to_the_user_that_runs_it_only(tmp_path: Path) -> None:
    def ask(path: str, user: int) -> str:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", _ASK, server.url + path], user=user, cwd="/", capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip() or done.stderr

    with Server(tmp_path / "data") as server:
        assert (ask("/v1/jobs", 0), ask("/v1/jobs", 65534)) == ("200", "401")
        assert (ask("/healthz", 65534), ask("/readyz", 65534)) == ("200", "200")
        assert ask("/v1/jobs/x/report", 65534) == "401"
