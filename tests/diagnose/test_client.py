"""The client of training scripts, against real HTTP servers that behave and that do not."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from diagnose.client import Resume, Run
from tests.conftest import ROOT

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A server on loopback; ``answer`` says how, ``requests`` what came."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any] | None, str | None]] = []
        self.answer: Answer = lambda request: reply(request, 200, {"stored": True})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                outer.requests.append((self.command, self.path, body, self.headers.get("Authorization")))
                outer.answer(self)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(request: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("DIAGNOSE_URL", "DIAGNOSE_TOKEN", "DIAGNOSE_JOB", "DIAGNOSE_ATTEMPT", "SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def test_reports_arrive_in_order_with_the_attempt(server: Server) -> None:
    run = Run("job/1", url=server.url + "/", token="secret", attempt=3)
    run.checkpoint(100, "/ckpt/100", healthy=True)
    assert run.close(10)
    run.progress(101, loss=2.5)
    run.checkpoint(200, "/ckpt/200")
    assert run.close(10)
    assert run.problem is None
    assert sorted((method, path, token) for method, path, _, token in server.requests) == [
        ("POST", "/v1/jobs/job%2F1/checkpoints", "Bearer secret"),
        ("POST", "/v1/jobs/job%2F1/checkpoints", "Bearer secret"),
        ("POST", "/v1/jobs/job%2F1/progress", "Bearer secret"),
    ]
    bodies = [body for _, _, body, _ in server.requests if body is not None]
    saved = [body for body in bodies if "path" in body]
    assert [(body["step"], body["path"], body["healthy"], body["attempt"]) for body in saved] == [
        (100, "/ckpt/100", True, 3),
        (200, "/ckpt/200", None, 3),
    ]
    (progress,) = [body for body in bodies if "loss" in body]
    assert (progress["step"], progress["loss"], progress["loss_is"]) == (101, 2.5, None)
    assert abs(progress["time"] - time.time()) < 60


def test_of_many_steps_the_latest_is_sent(server: Server) -> None:
    server.answer = lambda request: (time.sleep(0.05), reply(request, 200, {}))[1]
    run = Run("j", url=server.url)
    for step in range(20_000):
        run.progress(step, loss=1.0)
    assert run.close(10)
    steps = [body["step"] for _, _, body, _ in server.requests if body]
    assert steps[-1] == 19_999
    assert steps == sorted(steps)
    assert len(steps) < 1000


@pytest.mark.parametrize(("loss", "told"), [(float("nan"), "nan"), (float("inf"), "inf")])
def test_a_loss_that_is_no_number_is_valid_json(server: Server, loss: float, told: str) -> None:
    run = Run("j", url=server.url)
    run.progress(1, loss=loss)
    assert run.close(10)
    ((_, _, body, _),) = server.requests
    assert body is not None
    assert (body["loss"], body["loss_is"]) == (None, told)


def test_resume_is_read(server: Server) -> None:
    told = {"step": 100, "path": "/ckpt/100", "skip_batches": [[110, 130], [200, 200]], "why": "a spike", "more": "later"}
    server.answer = lambda request: reply(request, 200, told)
    resume = Run("j", url=server.url).resume(proposed=True)
    assert resume == Resume(100, "/ckpt/100", ((110, 130), (200, 200)), "a spike", known=True)
    assert [batch for batch in (109, 110, 130, 131, 199, 200, 201) if resume.skips(batch)] == [110, 130, 200]
    assert server.requests[0][1] == "/v1/jobs/j/resume?proposed=true"


def test_what_failed_for_a_while_is_sent_later(server: Server) -> None:
    left = [503, 429, 500]

    def answer(request: BaseHTTPRequestHandler) -> None:
        reply(request, left.pop() if left else 200, {"step": 7, "skip_batches": []})

    server.answer = answer
    run = Run("j", url=server.url)
    assert run.resume(timeout_s=20).step == 7
    left[:] = [503, 502]
    run.checkpoint(1, "p")
    assert run.close(20)
    assert [body["step"] for _, _, body, _ in server.requests if body] == [1, 1, 1]
    assert run.dropped == 0


def hang(request: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


def drip(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then: no single read takes long."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    for _ in range(150):
        request.wfile.write(b" ")
        time.sleep(0.2)


def body(data: Any, status: int = 200, **headers: str) -> Answer:
    return lambda request: reply(request, status, data, **headers)


@pytest.mark.parametrize(
    "answer",
    [
        hang,
        drip,
        body(b"not json"),
        body(b"\xff\xfe\x00"),
        body([1, 2]),
        body(None),
        body({"step": -1}),
        body({"step": "12"}),
        body({"step": True}),
        body({"step": 1e3}),
        body({"step": 10**30}),
        body({"path": "x\0y"}),
        body({"path": 7}),
        body({"path": "x" * 5000}),
        body({"skip_batches": [[1]]}),
        body({"skip_batches": [["a", "b"]]}),
        body({"skip_batches": {"a": 1}}),
        body(b"[" * 100_000),
        body(b'{"step": 5' + b" " * (2 << 20) + b"}"),
        body({"what": "no \x1b[31mtoken"}, 401),
        body({"what": "no such job"}, 404),
        body(b"<html>", 302, Location="http://127.0.0.1:9/steal"),
        body(b"", 500),
        lambda request: request.connection.close(),
        lambda request: request.wfile.write(b"garbage\r\n\r\n") and None,
    ],
)
def test_whatever_the_service_answers_training_starts_in_time(server: Server, answer: Answer) -> None:
    server.answer = answer
    run = Run("j", url=server.url, token="secret")
    began = time.monotonic()
    resume = run.resume(timeout_s=1.0)
    assert time.monotonic() - began < 3
    assert (resume.step, resume.path, resume.skip, resume.known) == (None, None, (), False)
    run.checkpoint(1, "p")
    run.progress(1, loss=0.0)
    began = time.monotonic()
    run.close(0.5)
    assert time.monotonic() - began < 2


def test_nobody_there_and_nothing_configured(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        run = Run("j", url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert run.resume(timeout_s=0.5) == Resume()
        for step in range(1000):
            run.checkpoint(step, "p")
        assert run.dropped >= 1000 - 300
        assert run.problem is not None
        assert "cannot be reached" in run.problem
    with caplog.at_level(logging.WARNING):
        assert Run().resume() == Resume()
    assert "DIAGNOSE_URL" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"job": "j", "url": "ftp://x"},
        {"job": "j", "url": "http://["},
        {"job": "j", "url": "file:///etc/passwd"},
        {"job": "j", "url": "http://user:lines@127.0.0.1:9"},
        {"job": "j", "url": "http://127.0.0.1:99999"},
        {"job": "j", "url": "http://127.0.0.1:x"},
        {"job": "j", "url": "http://127.0.0.1:9", "token": "two\nlines"},
        {"job": "j", "url": "http://127.0.0.1:9", "token": "ü"},
        {"job": "j", "url": "http://127.0.0.1:9", "timeout_s": "soon"},
        {"job": "j", "url": "http://127.0.0.1:9", "timeout_s": float("nan")},
        {"job": "j", "url": "http://127.0.0.1:9", "attempt": "x"},
        {"job": 7, "url": 8},
    ],
)
def test_nothing_given_raises(arguments: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    run = Run(**arguments)
    assert run.resume(timeout_s=0.3) == Resume()
    for wrong in (None, "x", float("nan"), [], 10**400):
        run.progress(wrong, loss=wrong)  # type: ignore[arg-type]
        run.checkpoint(wrong, wrong, healthy=wrong)  # type: ignore[arg-type]
    run.close("soon")  # type: ignore[arg-type]
    run.close(0.2)
    assert run.problem is not None
    assert "lines" not in caplog.text, "a secret is not told"


def test_the_token_does_not_follow_a_redirect(server: Server) -> None:
    other = Server()
    try:
        server.answer = body(b"", 307, Location=f"{other.url}/v1/jobs/j/resume")
        run = Run("j", url=server.url, token="secret")
        run.resume(timeout_s=1)
        run.checkpoint(1, "p")
        run.close(5)
        assert server.requests
        assert other.requests == []
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("environment", "attempt"),
    [
        ({}, None),
        ({"SLURM_RESTART_COUNT": "0"}, 1),
        ({"SLURM_RESTART_COUNT": "2"}, 3),
        ({"TORCHELASTIC_RESTART_COUNT": "1"}, 2),
        ({"DIAGNOSE_ATTEMPT": "5", "SLURM_RESTART_COUNT": "2"}, 5),
        ({"SLURM_RESTART_COUNT": "x"}, None),
    ],
)
def test_the_attempt_is_the_launchers(
    server: Server, environment: dict[str, str], attempt: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environment, "DIAGNOSE_URL": server.url, "SLURM_JOB_ID": "812"}.items():
        monkeypatch.setenv(name, value)
    run = Run()
    run.checkpoint(1, "p")
    assert run.close(10)
    ((_, path, sent, _),) = server.requests
    assert (path, sent["attempt"] if sent else "nothing") == ("/v1/jobs/812/checkpoints", attempt)


def test_the_last_reports_leave_at_the_end_of_the_program_and_from_a_fork(server: Server) -> None:
    program = (
        "import os, sys\nfrom diagnose.client import Run\n"
        f"run = Run('j', url={server.url!r})\nrun.checkpoint(1, 'p'); run.close(10)\n"
        "if (child := os.fork()) == 0:\n    run.checkpoint(2, 'q'); os._exit(0 if run.close(10) else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\nrun.checkpoint(3, 'r')\n"
        "assert not {m for m in sys.modules if m.split('.')[0] in ('pydantic', 'yaml', 'numpy', 'regex', 'openai')}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [sent["step"] for _, _, sent, _ in server.requests if sent] == [1, 2, 3]


def test_a_step_costs_next_to_nothing_while_the_service_hangs(server: Server) -> None:
    """A ratio in one run: a report against writing the same numbers as JSON."""
    server.answer = hang
    run = Run("j", url=server.url)
    run.progress(0, loss=1.0)

    def least(work: Callable[[int], object]) -> float:
        times = []
        for _ in range(7):
            began = time.perf_counter()
            for step in range(2000):
                work(step)
            times.append(time.perf_counter() - began)
        return min(times)

    assert least(lambda step: run.progress(step, loss=1.0)) < 10 * least(lambda step: json.dumps({"step": step, "loss": 1.0}))
