"""How long it takes from the start of ``diagnose serve`` until its port answers, and until it is ready.

    python -m benchmarks.opening [--times 5] [--empty-cache]

For each start it prints seconds and processor time of the process until the first answer of ``/healthz``, and until ``/readyz``
says yes.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

_PATIENCE_S = 180.0
_HERTZ = os.sysconf("SC_CLK_TCK")


class Start(NamedTuple):
    """Seconds since the process began."""

    answers: float
    answers_cpu: float
    ready: float
    ready_cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--empty-cache", action="store_true", help="compile rules, if need be")
    given = parser.parse_args()
    found = []
    for _ in range(given.times):
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), empty_cache=given.empty_cache))
            print("answers after {:.2f} s ({:.2f} s of a processor), ready after {:.2f} s ({:.2f} s)".format(*found[-1]))
    middle = Start(*(statistics.median(column) for column in zip(*found, strict=True)))
    print("median: answers after {:.2f} s ({:.2f} s of a processor), ready after {:.2f} s ({:.2f} s)".format(*middle))


def measure(folder: Path, *, empty_cache: bool = False) -> Start:
    """One start, with a new data folder."""
    port = _free_port()
    words = ["serve", "--data", str(folder / "data"), "--port", str(port), "--log-level", "error"]
    environment = {**os.environ, **({"DIAGNOSE_CACHE": str(folder / "cache")} if empty_cache else {})}
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "diagnose", *words], env=environment, stdout=subprocess.DEVNULL)
    try:
        _until(f"http://127.0.0.1:{port}/healthz", process)
        answers, answers_cpu = time.monotonic() - began, _processor(process.pid)
        _until(f"http://127.0.0.1:{port}/readyz", process)
        return Start(answers, answers_cpu, time.monotonic() - began, _processor(process.pid))
    finally:
        process.terminate()
        process.wait(60)


def _until(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.005)
    raise SystemExit(f"{url} did not answer")


def _processor(pid: int) -> float:
    """Processor time of a process and its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
