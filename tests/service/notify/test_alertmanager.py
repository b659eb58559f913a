"""A real Alertmanager: it takes our alerts, and tells us of those about nodes as docs/policy.md sets it up."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import ROOT
from tests.support.servers import Server

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROGRAM is None, reason="Alertmanager is not installed: apt install prometheus-alertmanager"),
]
GPU13 = (ROOT / "fixtures" / "logs" / "job123" / "gpu-13.log").read_bytes()
MANUAL = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
HOSTILE = b'Traceback (most recent call last):\n  File "/t.py", line 3, in <module>\n    go()\n'
HOSTILE += b"KeyError: '{{ .Labels }} <!x> \x1b[31m\xff'\n"


class Alertmanager:
    """One of our own, without neighbours."""

    def __init__(self, folder: Path, receivers: list[dict[str, Any]]) -> None:
        route = {"receiver": receivers[0]["name"], "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"}
        (folder / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": receivers}))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / "alertmanager.log"
        flags = [
            f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'kept'}",
            f"--web.listen-address={address}", "--cluster.listen-address=", "--log.level=debug",
        ]  # fmt: skip
        assert PROGRAM is not None
        with self._log.open("w") as log:
            self._process = subprocess.Popen([PROGRAM, *flags], stdout=log, stderr=log)
        self.url = f"http://{address}/api/v2/alerts"
        self.client = httpx.Client(base_url=f"http://{address}/api/v2", timeout=30)
        assert until(lambda: self.client.get("/status").status_code == 200), self.log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("/alerts").raise_for_status().json()
        return found

    def tell(self, labels: dict[str, str], begins: datetime, ends: datetime | None = None) -> None:
        """As Prometheus does when a rule of its own fires, and when it is over."""
        alert = {"labels": labels, "annotations": {"summary": "GPU 3 reports Xid 79"}, "startsAt": begins.isoformat()}
        answer = self.client.post("/alerts", json=[alert | ({"endsAt": ends.isoformat()} if ends else {})])
        assert answer.status_code == 200, answer.text

    def close(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()


def until(true: Callable[[], Any], within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while True:
        try:
            found = true()
        except httpx.TransportError:
            found = None
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8") as running:
        yield running


def test_it_takes_our_alerts_about_failures_and_tests(tmp_path: Path, server: Server) -> None:
    theirs = Alertmanager(tmp_path, [{"name": "nobody"}])
    try:
        added = server.client.post("/v1/webhooks", json={"url": theirs.url, "format": "alertmanager"})
        assert added.status_code == 201, added.text
        server.client.post(f"/v1/webhooks/{added.json()['id']}/test")
        for job, text in (("broken", GPU13), ("hostile", HOSTILE)):
            server.push(job, text, source="log", offset=0)
            server.end(job, 1)
        names = {"DiagnoseTest", "TrainingJobFailed", "DiagnoseAction"}
        assert until(lambda: {one["labels"]["alertname"] for one in theirs.alerts()} == names and len(failed(theirs)) == 2), (
            theirs.log
        )
        found = failed(theirs)["broken"]
        assert (
            found["labels"] | {"reason": "ecc_error", "category": "infrastructure", "severity": "critical"} == found["labels"]
        )
        assert found["status"]["state"] == "active"
        assert "gpu-13" in found["annotations"]["nodes"]
        begins, ends = (datetime.fromisoformat(found[name]) for name in ("startsAt", "endsAt"))
        assert ends - begins == timedelta(hours=4)
        assert "{{ .Labels }} <!x>" in failed(theirs)["hostile"]["annotations"]["root_cause"]
        assert until(lambda: not server.get("/v1/webhooks")["webhooks"][0]["waiting"]), "each was taken at its first try"
        assert theirs.client.get("/status").json()["cluster"]["status"] == "disabled"
    finally:
        theirs.close()


def failed(theirs: Alertmanager) -> dict[str, dict[str, Any]]:
    return {one["labels"]["training_job"]: one for one in theirs.alerts() if one["labels"]["alertname"] == "TrainingJobFailed"}


def test_it_tells_us_of_nodes_as_the_manual_sets_it_up(tmp_path: Path, server: Server) -> None:
    words = "tokens", "create", "alertmanager", "--role", "node", "--node", "gpu-*", "--data", str(server.data)
    made = subprocess.run([sys.executable, "-m", "diagnose", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    token = made.stdout.split()[0]
    (tmp_path / "token").write_text(token)
    written = re.search(r"^ +(receivers: .*webhook_configs.*)$", MANUAL, re.MULTILINE)
    assert written is not None
    set_up = written[1].replace("http://diagnose.example:8321", server.url)
    set_up = set_up.replace("/etc/alertmanager/diagnose-token", str(tmp_path / "token"))
    theirs = Alertmanager(tmp_path, yaml.safe_load(set_up)["receivers"])
    admin = admitted(server)
    try:
        begins = datetime.now(UTC) - timedelta(minutes=1)
        labels = {"alertname": "DcgmXidError", "Hostname": "gpu-17", "gpu": "3"}
        theirs.tell(labels, begins)
        assert until(lambda: findings(server, admin)), theirs.log
        (found,) = findings(server, admin)
        assert (found["source"], found["name"], found["who"]) == ("alertmanager", "DcgmXidError", "alertmanager")
        assert (found["said"], found["ended"]) == ("GPU 3 reports Xid 79", None)
        assert found["at"] == pytest.approx(begins.timestamp(), abs=0.001)

        theirs.tell(labels, begins, datetime.now(UTC))
        assert until(lambda: findings(server, admin)[0]["ended"]), theirs.log
        assert len(findings(server, admin)) == 1, "it is the same alert"

        theirs.tell({"alertname": "DcgmXidError", "Hostname": "login-1"}, begins)
        assert until(lambda: "403" in theirs.log), "the token may not speak of that node"
        assert server.client.get("/v1/nodes/login-1", headers=admin).status_code == 404
    finally:
        theirs.close()


def findings(server: Server, admin: dict[str, str]) -> list[dict[str, Any]]:
    answer = server.client.get("/v1/nodes/gpu-17", headers=admin)
    found: list[dict[str, Any]] = answer.json()["findings"] if answer.status_code == 200 else []
    return found


def admitted(server: Server) -> dict[str, str]:
    words = "tokens", "create", "root", "--role", "admin", "--data", str(server.data)
    made = subprocess.run([sys.executable, "-m", "diagnose", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return {"Authorization": f"Bearer {made.stdout.split()[0]}"}
