"""Without the model's side diagnose still works: what asks a model, and what learns, can be deleted whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

REMOVED = ("diagnose/agent", "diagnose/evaluate", "diagnose/learning", "diagnose/model")
LOG = "step 1 loss 2.0\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'x'\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without the model's side."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("diagnose", "service", "rules", "prompts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in REMOVED:
        shutil.rmtree(folder / name)
    return folder


PROGRAM = """
import sys
# An editable install finds the deleted folders in the checkout: it must not be asked.
sys.meta_path = [finder for finder in sys.meta_path if "__editable__" not in f"{finder} {getattr(finder, '__module__', '')}"]
from diagnose.cli import main
sys.exit(main())
"""


def started(copy: Path, *words: str, **how: Any) -> subprocess.Popen[str]:
    """``diagnose`` of that copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=copy, env=environment, text=True, **how)


def test_what_is_deleted_is_gone(copy: Path) -> None:
    """Or the other tests would show nothing."""
    with started(copy, "llm", "check", "--llm", "http://127.0.0.1:1/v1", stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=60)

    assert "this needs the package" in said
    assert "Traceback" not in said


def test_replay_still_diagnoses(copy: Path) -> None:
    with started(copy, "replay", "-", "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        printed, _ = process.communicate(LOG, timeout=240)

    assert process.returncode == 1
    assert json.loads(printed)["diagnosis"]["reason"] == "key_error"


def test_serve_still_starts_and_diagnoses(copy: Path, tmp_path: Path) -> None:
    with started(copy, "serve", "--port", "0", "--data", str(tmp_path / "data"), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            url = next((line.split()[-1] for line in server.stdout if " on http" in line), None)
            assert url is not None
            send(f"{url}/v1/jobs/x/logs?source=a&offset=0", LOG.encode())
            send(f"{url}/v1/jobs/x/end", b'{"exit_code": 1}', **{"content-type": "application/json"})
            assert _reason(url) == "key_error"
        finally:
            server.terminate()


def send(url: str, body: bytes, **headers: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=60) as answer:
        answer.read()


def _reason(url: str) -> str | None:
    """The reason of the job, as soon as the service knows one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{url}/v1/jobs/x/report", timeout=30) as answer:
            report = json.load(answer)
        if report["outcome"] == "failed":
            return str(report["diagnosis"]["reason"])
        time.sleep(0.1)
    return None
