"""A client that openapi-python-client makes of our document can push a log and read its report, with a token."""

from __future__ import annotations

import importlib
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
LOG = b"step 1 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def test_a_generated_client_pushes_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    made = subprocess.run(
        [sys.executable, "-m", "diagnose", "tokens", "create", "admin", "--role", "admin", "--data", str(data)],
        capture_output=True, text=True, cwd=ROOT, timeout=100,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with Server(data) as server:
        (tmp_path / "openapi.json").write_bytes(server.client.get("/openapi.json").content)
        (tmp_path / "config.yaml").write_text("post_hooks: []\nproject_name_override: generated\n")
        done = subprocess.run(
            [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.yaml",
             "--meta", "none", "--output-path", "generated"],
            cwd=tmp_path, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        monkeypatch.syspath_prepend(str(tmp_path))
        generated = importlib.import_module("generated")
        types = importlib.import_module("generated.types")
        push = importlib.import_module("generated.api.logs.push_v1_jobs_job_logs_post")
        end = importlib.import_module("generated.api.logs.finish_v1_jobs_job_end_post")
        models = importlib.import_module("generated.models")
        client = generated.AuthenticatedClient(base_url=server.url, token=made.stdout.strip())
        stranger = generated.AuthenticatedClient(base_url=server.url, token="dgn_wrong")
        body = types.File(payload=BytesIO(LOG))
        assert push.sync_detailed("run7", client=stranger, body=body, offset=0).status_code == 401
        taken = push.sync("run7", client=client, body=types.File(payload=BytesIO(LOG)), source="rank0.log", rank=3, offset=0)
        assert taken.next_offset == len(LOG)
        assert end.sync_detailed("run7", client=client, body=models.Finish(exit_code=1)).status_code == 200
        report = importlib.import_module("generated.api.jobs.report_v1_jobs_job_report_get")
        assert report.sync("run7", client=client).diagnosis.reason == "ecc_error"
