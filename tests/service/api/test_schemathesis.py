"""Whatever the OpenAPI document allows, and what it does not: no answer is a 5xx, and refusals have their one shape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.servers import Server

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
"""Not yet: negative_data_rejection, positive_data_acceptance, unsupported_method, where the document says less than is meant;
and missing_required_header and ignored_auth, which a service without a token cannot pass
"""
pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


def test_no_request_makes_the_service_fail(tmp_path: Path) -> None:
    examples = os.environ.get("DIAGNOSE_EXAMPLES", "25")
    with Server(tmp_path / "data", "--raw-logs", str(tmp_path / "raw")) as server:
        server.push("known", b"KeyError: 'x'\n", source="log", offset=0)
        server.end("known", 1)
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--url", server.url,
             "--checks", ",".join(CHECKS),
             "--exclude-path", "/v1/events", "--max-examples", examples, "--request-timeout", "30",
             "--phases", "examples,coverage,fuzzing", "--seed", "7", "--no-color"],
            capture_output=True, text=True, cwd=tmp_path, timeout=800, check=False,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert server.get("/readyz")["ready"] is True
        assert '"level": "error"' not in server.log
