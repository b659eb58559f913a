"""What is made of slurmrestd's answers to a change: only a refusal says that it was not done.

The server here is a newer slurmrestd than Debian's, which drains nodes (``test_slurm`` has the real one, which does not).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service.acting.executors.claim import Confirmed
from service.acting.executors.executor import Order, Outcome
from service.acting.executors.http import Server
from service.acting.executors.slurm import Slurm
from service.acting.executors.slurm_commands import Commands
from service.acting.executors.slurm_rest import Rest
from tests.service.acting.executors.test_slurm_orders import KEY, Controller

NODE = {"nodes": [{"name": "gpu-1", "state": ["IDLE"], "reason": ""}]}
JOB = {"jobs": [{"job_id": 7, "job_state": "CANCELLED", "user_name": "kim", "user_id": 1000}]}
PATHS = {"paths": {"/slurm/v0.0.39/job/{job_id}": {}, "/slurm/v0.0.39/node/{node_name}": {"post": {}}}}


@contextmanager
def slurmrestd(status: int, body: Any) -> Iterator[str]:
    """It answers so to any change."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, PATHS if self.path == "/openapi/v3" else JOB if "/job/" in self.path else NODE)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say(status, body)

        def _say(self, status: int, body: Any) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def error(number: int | None, text: str) -> dict[str, Any]:
    return {"errors": [{"error": text, **({"error_number": number} if number else {})}]}


@pytest.mark.parametrize(
    ("status", "body", "state", "next_door"),
    [
        pytest.param(200, {"errors": []}, "succeeded", False, id="done"),
        pytest.param(502, b"<html>Bad Gateway", "unknown", False, id="a-proxy-lost-it"),
        pytest.param(504, b"", "unknown", False, id="a-proxy-waited-in-vain"),
        pytest.param(500, {}, "unknown", False, id="it-broke-off"),
        pytest.param(500, error(None, "out of memory"), "unknown", False, id="no-word-of-slurmctld"),
        pytest.param(500, error(5004, "Socket timed out on send/recv operation"), "unknown", False, id="slurmctld-was-asked"),
        pytest.param(200, b"<html>Welcome to the proxy", "unknown", False, id="a-page"),
        pytest.param(500, error(1800, "Unable to contact slurm controller"), "succeeded", True, id="slurmctld-was-not-reached"),
        pytest.param(500, error(2002, "Access/permission denied"), "succeeded", True, id="slurmctld-refuses"),
        pytest.param(400, error(None, "bad query"), "failed", False, id="not-understood"),
        pytest.param(429, b"", "succeeded", True, id="not-now"),
    ],
)  # fmt: skip
def test_a_change_that_may_have_been_made_is_said_and_not_made_by_another_way(
    status: int, body: Any, state: str, next_door: bool
) -> None:
    commands = Controller()
    with slurmrestd(status, body) as url:
        rest = Rest(Server(url, timeout_s=5), user="x", token_env="T", environment={"T": "t"})
        outcome: Outcome = asyncio.run(Slurm([rest, commands]).carry_out(Order(KEY, "isolate", nodes=("gpu-1",))))

    assert (outcome.state, commands.done == ["drain gpu-1"]) == (state, next_door), outcome
    assert outcome.may_retry == (state == "unknown")


@pytest.mark.parametrize(
    ("uid", "by", "said"),
    [
        (1000, "owner", "its user kim cancelled it"),
        (64030, "other", "daemon (or Slurm itself) cancelled it, who is not its user"),
        (1001, "other", "uid 1001 cancelled it, who is not its user"),
    ],
)
def test_without_an_accounting_of_its_own_sacct_says_who_cancelled_the_job(
    tmp_path: Path, uid: int, by: str, said: str
) -> None:
    for name, line in (("sacct", f"CANCELLED by {uid}"), ("scontrol", "SlurmUser               = daemon(64030)")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{line}'\n")
        (tmp_path / name).chmod(0o755)
    with slurmrestd(200, {}) as url:
        rest = Rest(Server(url, timeout_s=5), user="x", token_env="T", environment={"T": "t"})
        found = asyncio.run(Slurm([rest, Commands(folder=tmp_path)]).confirm(Order("", "restart", "7", 1)))
    assert isinstance(found, Confirmed)
    assert found.ending is not None
    assert (found.ending.by, found.ending.said.partition("; ")[2]) == (by, said)
