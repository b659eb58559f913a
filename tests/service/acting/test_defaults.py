"""What the default asks of who has no scheduler, no bound tokens and no projects: nothing, unless the policy is to act."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.attacker import SOFT, STEPS, Service, until
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]
XID = "Nov 21 10:00:01 gpu-17 kernel: [812345.670] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[str], Server]:
    """A service with one program that carries out everything."""

    def made(policy: str) -> Server:
        (tmp_path / "policy.yaml").write_text(
            policy + "\nbudgets: {cuda_error: {backoff: 0s}, gpu_fell_off_bus: {backoff: 0s}}\n"
        )
        (tmp_path / "executors.yaml").write_text(
            f"executors:\n  - {{name: act, type: command, command: ['{sys.executable}', -c, 'pass'], repeatable: true}}\n"
        )
        words = "--policy", str(tmp_path / "policy.yaml"), "--executors", str(tmp_path / "executors.yaml")
        return Server(tmp_path / "data", *words)

    return made


def fails(client: httpx.Client, server: Server, job: str, text: str, **params: str) -> dict[str, Any]:
    assert client.post(f"/v1/jobs/{job}/logs", params=params, content=(STEPS + text).encode()).status_code == 200
    assert client.post(f"/v1/jobs/{job}/end", json={"exit_code": 1}).status_code == 200
    (action,) = until(lambda: server.get("/v1/actions", job=job)["actions"], "an action")
    return dict(action)


def test_a_policy_that_asks_works_without_a_token(serve: Callable[[str], Server]) -> None:
    with serve("mode: approve\nlimits: {isolated_share: 100%}") as server:
        action = fails(server.client, server, "run", XID, node="gpu-17", source="kern.log")
        assert (action["kind"], action["nodes"], action["unconfirmed"]) == ("isolate_and_restart", ["gpu-17"], None)
        assert server.client.post(f"/v1/actions/{action['id']}/approve").status_code == 200
        until(lambda: server.get(f"/v1/actions/{action['id']}")["state"] == "succeeded", "it to be carried out")


def test_a_policy_that_acts_asks_and_says_why_where_nobody_speaks_for_a_job(serve: Callable[[str], Server]) -> None:
    with serve("mode: auto") as server:
        action = fails(server.client, server, "run", SOFT)
        page = server.client.get(f"/ui/actions/{action['id']}").text
        log = server.log
    assert (action["state"], action["mode"]) == ("proposed", "approve")
    assert "not all of the tokens that sent its data are bound to the name 'run' (tokens create --job)" in action["unconfirmed"]
    assert "Not confirmed" in page
    assert "diagnose tokens create" in page
    assert "no token speaks for anybody's jobs" in log


def test_one_administrators_token_is_enough(serve: Callable[[str], Server]) -> None:
    with serve("mode: auto") as server:
        admin = Service(server).token("admin", "--role", "admin").client
        server.client.headers["Authorization"] = admin.headers["Authorization"]
        until(lambda: httpx.get(f"{server.url}/v1/jobs").status_code == 401, "the service to be closed")
        action = fails(admin, server, "run", SOFT)
        until(lambda: server.get(f"/v1/actions/{action['id']}")["state"] == "succeeded", "it to be carried out")
