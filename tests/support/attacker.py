"""What a malicious ingest token is tried with: a service in mode auto, who may send logs to it, an administrator who looks."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from diagnose.cli import main
from tests.support.servers import Server

POLICY = """\
mode: auto
bursts: {jobs: 500}                # or what is done to one job would wait for the others
limits: {job_cool_down: 0s}
budgets: {gpu_fell_off_bus: {backoff: 0s}, cuda_error: {backoff: 0s}, native_crash: {backoff: 0s}, preempted: {backoff: 0s}}
"""
XID = "Nov 21 10:00:01 {node} kernel: [812345.670] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
STEPS = "".join(f"step {step}/1000 | loss 2.{step} | grad_norm 0.5\n" for step in range(1, 20))
SOFT = "RuntimeError: CUDA error: unspecified launch failure\n"


@dataclass
class Service:
    """A service, as its administrator sees it."""

    server: Server

    def token(self, name: str, *words: str) -> Sender:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):  # in this process: one of its own takes seconds to begin
            assert main(["tokens", "create", name, "--data", str(self.server.data), *words]) == 0
        sender = Sender(self, httpx.Client(base_url=self.server.url, timeout=60))
        sender.client.headers["Authorization"] = f"Bearer {said.getvalue().strip()}"
        until(lambda: sender.client.get("/v1/jobs/x/sources").status_code != 401, "the token to be known")
        return sender

    def settled(self, *jobs: str) -> list[dict[str, Any]]:
        """All actions, once these jobs were decided about and nothing is under way any more."""
        for job in jobs:
            path = f"/v1/jobs/{job}/decision"
            until(lambda path=path: self.server.client.get(path).status_code == 200, f"a decision on {job}")
        time.sleep(2.5)  # a round of the dispatcher, and of whoever looks again at what was put off

        def quiet() -> bool:
            return not any(one["state"] in ("approved", "dispatched", "running") for one in self.actions())

        until(quiet, "the orders to end")
        return self.actions()

    def actions(self) -> list[dict[str, Any]]:
        return list(self.server.get("/v1/actions", limit=1000)["actions"])


@dataclass
class Sender:
    """Who holds a token."""

    service: Service
    client: httpx.Client

    def push(self, job: str, text: str, **params: str) -> int:
        return self.client.post(f"/v1/jobs/{job}/logs", params=params, content=text.encode()).status_code

    def end(self, job: str, exit_code: int = 1) -> int:
        return self.client.post(f"/v1/jobs/{job}/end", json={"exit_code": exit_code}).status_code


def until(done: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := done()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)
    return found


@contextmanager
def acting(folder: Path, executor: str, **environment: str) -> Iterator[Service]:
    """A service that acts through one executor, and has an administrator's token."""
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "executors.yaml").write_text(f"executors:\n  - {{name: test, {executor}}}\n")
    words = "--policy", str(folder / "policy.yaml"), "--executors", str(folder / "executors.yaml")
    with Server(folder / "data", *words, **environment) as server:
        found = Service(server)
        server.client.headers["Authorization"] = found.token("admin", "--role", "admin").client.headers["Authorization"]
        until(lambda: httpx.get(f"{server.url}/v1/jobs").status_code == 401, "the service to be closed")
        yield found
