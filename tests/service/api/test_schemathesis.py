"""The OpenAPI document and the service say the same: what it allows is taken, what it does not is refused, in the form it says.

All checks of schemathesis are on. Its phase of examples is left out, as it cannot write those that are lines of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


def test_the_service_does_what_its_document_says(tmp_path: Path, diagnose: Any) -> None:
    examples = os.environ.get("DIAGNOSE_EXAMPLES", "8")
    data = tmp_path / "data"
    token = diagnose("tokens", "create", "admin", "--role", "admin", "--data", str(data)).stdout.strip()
    with Server(data, "--raw-logs", str(tmp_path / "raw")) as server:
        server.client.headers["authorization"] = f"Bearer {token}"
        server.push("known", b"KeyError: 'x'\n", source="log", offset=0)
        server.end("known", 1)
        # A body that is too large is refused as such, whatever else is wrong with it.
        (tmp_path / "schemathesis.toml").write_text(
            '[checks.negative_data_rejection]\nexpected-statuses = [400, 401, 403, 404, 405, 406, 413, 415, 422, 428, "5xx"]\n'
        )
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--url", server.url,
             "--checks", "all", "--header", f"Authorization: Bearer {token}",
             "--exclude-path", "/v1/events", "--max-examples", examples, "--request-timeout", "60", "--max-response-time", "60",
             "--phases", "coverage,fuzzing,stateful", "--seed", "7", "--no-color"],
            capture_output=True, text=True, cwd=tmp_path, timeout=800, check=False,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert server.get("/readyz")["ready"] is True
        assert '"level": "error"' not in server.log
