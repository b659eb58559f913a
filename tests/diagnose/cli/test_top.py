"""``diagnose top``: the page of a service, and of a job whose files grow."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from diagnose.cli.top import page
from diagnose.rendering.terminal import Style
from tests.conftest import ROOT


def job(name: str, **more: Any) -> dict[str, Any]:
    known = {
        "state": "running",
        "reason": None,
        "confidence": None,
        "step": 12.0,
        "loss": 2.5,
        "last_seen": 90.0,
        "user": "kim",
    }
    return {"name": name, **known, **more}


def test_jobs_at_risk_stand_first_and_what_only_advises_does_not_wait() -> None:
    jobs = [job("good"), job("bad\x1b[2J", reason="hang", confidence=0.8), job("unsure", reason="hang", confidence=0.2)]
    failure = {"reason": "ecc_error", "count": 3, "last_seen": 40.0, "title": "A GPU lost a row"}
    action = {"id": 7, "kind": "restart", "mode": "approve", "job": "train", "nodes": [], "created": 40.0, "why": "it hangs"}
    waiting = [action, {**action, "id": 8, "kind": "fix_code"}, {**action, "id": 9, "mode": "observe"}]
    said = page("http://here", jobs, [failure], waiting, 100.0, Style(io.StringIO()))
    lines = said.split("\n")
    assert lines[0] == "http://here  3 running, 1 at risk, 1 open failure, 1 waiting"
    assert lines[3].split("  ")[0] == "bad\\x1b[2J"
    assert "at risk: hang 80%" in lines[3]
    assert "#7 restart" in said
    assert "#8" not in said
    assert "#9" not in said
    assert "A GPU lost a row" in said


def test_on_a_low_terminal_many_jobs_leave_room_for_what_waits_and_what_fails() -> None:
    jobs = [job(f"train-{number}") for number in range(60)]
    failure = {"reason": "ecc_error", "count": 3, "last_seen": 40.0, "title": "A GPU lost a row"}
    action = {"id": 7, "kind": "restart", "mode": "approve", "job": "train", "nodes": [], "created": 40.0, "why": "it hangs"}
    said = page("http://here", jobs, [failure] * 8, [action] * 8, 100.0, Style(io.StringIO()), 23).split("\n")
    assert len(said) <= 23
    assert sum("restart" in line for line in said) == 4
    assert sum("ecc_error" in line for line in said) == 4
    assert any(line.startswith("and 5") and "more" in line for line in said)


def test_the_page_of_a_job_is_its_report_so_far(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("step 1 loss 2.0\nTraceback (most recent call last):\n  File 'x.py', line 1\nKeyError: 'shard'\n")
    done = _top(str(log))
    assert done.returncode == 0, done.stderr
    assert "key_error" in done.stdout


def test_a_service_that_is_away_is_said() -> None:
    done = _top("--to", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "the service does not answer" in done.stderr


def _top(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "diagnose", "top", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
