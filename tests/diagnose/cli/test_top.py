"""``diagnose top``: the page of a service, and of a job whose files grow."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.cli.top import page
from diagnose.rendering.terminal import Style
from tests.conftest import ROOT
from tests.support.servers import Server


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


@pytest.mark.parametrize("high", [3, 5, 9, 13, 16, 17, 18, 23, 49])
@pytest.mark.parametrize("jobs", [0, 1, 60])
def test_a_low_terminal_shows_what_waits_then_what_fails_then_jobs(high: int, jobs: int) -> None:
    running = [job("bad", reason="hang", confidence=0.8), *(job(f"train-{number}") for number in range(60))][:jobs]
    failure = {"reason": "ecc_error", "count": 3, "last_seen": 40.0, "title": "A GPU lost a row"}
    action = {"id": 7, "kind": "restart", "mode": "approve", "job": "train", "nodes": [], "created": 40.0, "why": "it hangs"}
    said = page("http://here", running, [failure] * 8, [action] * 8, 100.0, Style(io.StringIO()), high).split("\n")
    assert len(said) <= high, "nothing is cut off"
    words = ("#7 restart",), ("ecc_error",), ("running", "at risk:", "no job")
    shown = [sum(any(word in line for word in each) for line in said[1:]) for each in words]
    assert shown[0] >= 1
    assert shown[1] >= (1 if high >= 5 else 0)
    assert shown[2] >= (1 if high >= 9 else 0)
    assert any("at risk: hang" in line for line in said) == (jobs > 0 and high >= 9)
    if shown[2] > 1:
        assert shown[:2] == ([8, 8] if high > 32 else [4, 4]), "jobs only have what is left"


@pytest.mark.server
def test_on_a_real_terminal_of_ten_lines_what_waits_and_what_fails_are_seen(tmp_path: Path) -> None:
    pty, termios, fcntl = (pytest.importorskip(name) for name in ("pty", "termios", "fcntl"))
    (tmp_path / "policy.yaml").write_text("mode: approve\n")
    with Server(tmp_path / "data", "--policy", str(tmp_path / "policy.yaml")) as server:
        for number in range(12):
            server.push(f"train-{number}", b"step 1 loss 2.0\n")
        server.push(
            "lost", b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n", source="gpu-1.log", node="gpu-1"
        )
        server.end("lost", 1)
        server.get("/v1/jobs/lost/report")
        until = time.monotonic() + 120
        while not server.get("/v1/actions?state=proposed")["actions"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 80, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        command = [sys.executable, "-m", "diagnose", "top", "--to", server.url]
        shown = subprocess.Popen(command, stdin=theirs, stdout=theirs, env={**known, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"})
        os.close(theirs)
        try:
            said = b""
            while said.count(b"\x1b[J") < 2:  # the first page is whole when the second begins
                said += os.read(ours, 1 << 16)
        finally:
            shown.terminate()
            shown.wait()
            os.close(ours)
    lines = said.split(b"\x1b[J")[1].split(b"\x1b[H")[0].decode().splitlines()
    assert len(lines) <= 9
    assert any("isolate" in line or "restart" in line for line in lines)
    assert any(line.startswith("ecc_error") for line in lines)
    assert any(line.startswith("train-") for line in lines)
    assert all(len(line) <= 80 for line in lines)


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
