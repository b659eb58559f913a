"""The port answers while the service gets ready, and nobody who waits at it is lost when the service takes over."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from diagnose.errors import DiagnoseError
from service.api.bodies import Readiness
from service.opening import Opening
from service.settings import Settings
from tests.conftest import ROOT
from tests.support.live import until


@pytest.fixture
def opening() -> Iterator[Opening]:
    with Opening(Settings(port=0)) as made:
        yield made


def url(opening: Opening) -> str:
    return f"http://127.0.0.1:{opening.socket.getsockname()[1]}"


def test_it_lives_and_is_not_ready_and_says_what_it_is_at(opening: Opening) -> None:
    opening.at("compiling the rules")
    assert httpx.get(f"{url(opening)}/healthz").json() == {"status": "ok"}
    ready = httpx.get(f"{url(opening)}/readyz?x=1")
    assert ready.status_code == 503
    assert Readiness.model_validate(ready.json()).problems == ["the service gets ready: compiling the rules"]
    assert set(ready.json()) == set(Readiness.model_fields)


def test_who_pushes_is_told_when_to_come_back(opening: Opening) -> None:
    answer = httpx.post(f"{url(opening)}/v1/jobs/a/logs", params={"source": "s", "offset": 0}, content=b"x\n" * 50_000)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert set(answer.json()) == {"error", "what", "remedy"}


def test_garbage_and_heads_without_an_end_are_no_trouble(opening: Opening) -> None:
    address = opening.socket.getsockname()[:2]
    held = []
    for sent in (b"\x16\x03\x01" * 20_000, b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 40_000, b"\r\n\r\n", b"", b"GET"):
        held.append(socket.create_connection(address))
        held[-1].sendall(sent)
    assert httpx.get(f"{url(opening)}/healthz").status_code == 200
    for one in held:
        one.close()


def test_who_waits_at_the_port_is_answered_by_who_takes_over(opening: Opening) -> None:
    """No connection is refused: the socket stays open, from the first moment on."""
    address = opening.socket.getsockname()[:2]
    opening.hand_over()
    waiting = socket.create_connection(address)  # nobody answers at present
    waiting.sendall(b"GET /later HTTP/1.1\r\n\r\n")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def take_over() -> bytes:
        server = await asyncio.start_server(answer, sock=opening.socket.dup())
        found = await asyncio.to_thread(waiting.recv, 100)
        server.close()
        return found

    assert asyncio.run(take_over()) == b"GET /later HTTP/1.1\r\n"
    waiting.close()


def test_who_was_accepted_before_and_is_slow_to_ask_is_still_answered(opening: Opening) -> None:
    address = opening.socket.getsockname()[:2]
    slow = [socket.create_connection(address) for _ in range(300)]
    assert httpx.get(f"{url(opening)}/healthz").status_code == 200  # whoever came before it was accepted before it
    opening.hand_over()
    late = socket.create_connection(address)  # nobody answers this one at present
    late.settimeout(0.3)
    late.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    with pytest.raises(TimeoutError):
        late.recv(100)
    time.sleep(1.5)
    for one in slow:
        one.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    answers = {one.recv(1000).split(b"\r\n")[0] for one in slow}
    assert answers == {b"HTTP/1.1 200 OK"}
    for one in [*slow, late]:
        one.close()


def test_a_port_that_is_taken_is_one_line_and_so_is_a_certificate_that_is_none(opening: Opening, tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match=r"cannot listen: .*choose another --port"):
        Opening(Settings(port=opening.socket.getsockname()[1]))
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(DiagnoseError, match="the certificate cannot be used"):
        Opening(Settings(port=0, tls_certificate=tmp_path / "none.pem", tls_key=tmp_path / "none.pem"))


@pytest.mark.server
def test_a_service_answers_from_its_first_second_on_and_never_refuses_a_connection(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said: list[tuple[float, str]] = []
    words = [sys.executable, "-m", "diagnose", "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    stdout = process.stdout
    reader = threading.Thread(target=lambda: said.extend((time.monotonic(), line) for line in stdout), daemon=True)
    reader.start()
    try:
        seen: list[tuple[float, int, str]] = []
        deadline = time.monotonic() + 90
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            while not seen or seen[-1][1] != 200:
                assert time.monotonic() < deadline
                try:
                    ready = client.get("/readyz")
                except httpx.ConnectError:
                    assert not seen, "once it listens, it listens"
                    time.sleep(0.01)
                    continue
                if ready.status_code == 503:
                    pushed = client.post("/v1/jobs/a/logs", params={"source": "s", "offset": 0}, content=b"x\n")
                    assert pushed.status_code in (200, 503)
                    assert pushed.status_code == 200 or pushed.headers["Retry-After"]
                seen.append((time.monotonic(), ready.status_code, json.dumps(ready.json()["problems"])))
                time.sleep(0.02)
            assert client.post("/v1/jobs/a/logs", params={"source": "s", "offset": 0}, content=b"x\n").status_code == 200
        assert seen[0][1] == 503
        assert "the service gets ready: loading the program" in seen[0][2]
        until(lambda: said)
        assert [line.split(" ", 3)[:3] for _, line in said] == [["diagnose", "serves", "on"]]
        assert seen[0][0] < said[0][0], "it answered before it served"
    finally:
        process.terminate()
        process.wait(60)
