"""Programs that executors start: what becomes of them, and of what they have started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.acting.executors import processes
from tests.conftest import ROOT

SERVICE = """
import asyncio, os
from service.acting.executors import processes
script = "(sleep 60; touch acted) & echo $$ $! > begun.new; mv begun.new begun; wait"
asyncio.run(processes.run(["/bin/sh", "-c", script], environment=os.environ, timeout_s=60, largest=100))
"""


def test_if_we_are_killed_it_ends_with_what_it_has_started(tmp_path: Path) -> None:
    service = subprocess.Popen([sys.executable, "-c", SERVICE], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait(lambda: (tmp_path / "begun").exists())
    begun = [int(one) for one in (tmp_path / "begun").read_text().split()]
    assert all(runs(one) for one in begun)

    service.kill()
    service.wait()

    wait(lambda: not any(runs(one) for one in begun))


def test_what_it_leaves_behind_at_its_own_end_goes_on() -> None:
    words = ["/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]

    ended = asyncio.run(processes.run(words, environment=os.environ, timeout_s=30, largest=100))

    left = int(ended.out)
    assert (ended.code, runs(left)) == (0, True)
    os.kill(left, signal.SIGKILL)


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
