"""Clients that generators make of our document can push a log and read its report, with a token: Python and TypeScript."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
CLIENTS = ROOT / "tests" / "clients"
LOG = b"step 1 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"


class Guarded(NamedTuple):
    """A service with a token."""

    url: str
    token: str
    document: bytes


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("generated") / "data"
    made = run(sys.executable, "-m", "diagnose", "tokens", "create", "admin", "--role", "admin", "--data", str(data), at=ROOT)
    with Server(data) as server:
        yield Guarded(server.url, made.strip(), server.client.get("/openapi.json").content)


def run(*words: str, at: Path) -> str:
    done = subprocess.run(words, cwd=at, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_client_in_python(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "openapi.json").write_bytes(guarded.document)
    (tmp_path / "config.yaml").write_text("post_hooks: []\nproject_name_override: generated\n")
    run(
        sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.yaml",
        "--meta", "none", "--output-path", "generated", at=tmp_path,
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    generated = importlib.import_module("generated")
    types = importlib.import_module("generated.types")
    push = importlib.import_module("generated.api.logs.push_v1_jobs_job_logs_post")
    end = importlib.import_module("generated.api.logs.finish_v1_jobs_job_end_post")
    models = importlib.import_module("generated.models")
    client = generated.AuthenticatedClient(base_url=guarded.url, token=guarded.token)
    stranger = generated.AuthenticatedClient(base_url=guarded.url, token="dgn_wrong")
    body = types.File(payload=BytesIO(LOG))
    assert push.sync_detailed("run7", client=stranger, body=body, offset=0).status_code == 401
    taken = push.sync("run7", client=client, body=types.File(payload=BytesIO(LOG)), source="rank0.log", rank=3, offset=0)
    assert taken.next_offset == len(LOG)
    assert end.sync_detailed("run7", client=client, body=models.Finish(exit_code=1)).status_code == 200
    report = importlib.import_module("generated.api.jobs.report_v1_jobs_job_report_get")
    assert report.sync("run7", client=client).diagnosis.reason == "ecc_error"


def test_a_client_in_typescript(guarded: Guarded, tmp_path: Path) -> None:
    """openapi-typescript makes the types, tsc holds the program to them (`strict`), and openapi-fetch sends."""
    modules = CLIENTS / "node_modules"
    if shutil.which("node") is None or not (modules / "openapi-typescript").is_dir():
        pytest.skip("node, or `npm ci --prefix tests/clients`, is missing")
    (tmp_path / "openapi.json").write_bytes(guarded.document)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name in ("generated.ts", "tsconfig.json"):
        shutil.copy(CLIENTS / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    run(str(modules / ".bin" / "openapi-typescript"), "openapi.json", "--output", "api.d.ts", at=tmp_path)
    run(str(modules / ".bin" / "tsc"), "--project", ".", at=tmp_path)
    said = json.loads(run("node", "generated.js", guarded.url, guarded.token, "run8", at=tmp_path))
    assert said == {"refused": "unauthorised", "next_offset": len(LOG), "attempt": 1, "reason": "ecc_error"}
