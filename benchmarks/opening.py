"""How long a start takes: the first ``diagnose replay`` of a machine beside the second, and ``diagnose serve``.

    python -m benchmarks.opening [--times 5] [--empty-cache]

- *replay* of the sample job: first with an empty cache and without Python's own byte code, as after an unpacked archive; then
  again. Asked: the first takes at most 2 s more.
- *serve*: until the first answer of ``/healthz`` and until ``/readyz`` says yes. Asked: the first answer within 1 s.

Seconds by the clock, and of a processor: other work on the machine hardly changes the second figure.
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
from typing import Final, NamedTuple

from benchmarks.measure import ROOT

_SAMPLE: Final = ROOT / "fixtures" / "logs" / "job123"
_PATIENCE_S = 180.0
_HERTZ = os.sysconf("SC_CLK_TCK")


class Start(NamedTuple):
    """Seconds since the process began."""

    answers: float
    answers_cpu: float
    ready: float
    ready_cpu: float


class Replay(NamedTuple):
    """The first run, and the one after it."""

    first: float
    first_cpu: float
    second: float
    second_cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--empty-cache", action="store_true", help="serve, too, begins with an empty cache")
    given = parser.parse_args()
    runs, starts = [], []
    for _ in range(given.times):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(replayed(Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            starts.append(measure(Path(folder), empty_cache=given.empty_cache))
    run = Replay(*(statistics.median(column) for column in zip(*runs, strict=True)))
    start = Start(*(statistics.median(column) for column in zip(*starts, strict=True)))
    print(f"medians of {given.times}: seconds by the clock (of a processor)")
    print("replay  first {:.2f} ({:.2f}), second {:.2f} ({:.2f})".format(*run), end="")
    print(f": {run.first - run.second:+.2f} ({run.first_cpu - run.second_cpu:+.2f})")
    print("serve   answers after {:.2f} ({:.2f}), ready after {:.2f} ({:.2f})".format(*start))


def replayed(folder: Path) -> Replay:
    """Two runs that share an empty cache."""
    environment = {
        **os.environ,
        "DIAGNOSE_CACHE": str(folder / "cache"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    return Replay(*_run(environment), *_run(environment))


def _run(environment: dict[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and of a processor with all that the process started."""
    began = time.monotonic()
    words = [sys.executable, "-m", "diagnose", "replay", str(_SAMPLE)]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 1:  # the sample has failed
        raise SystemExit(f"diagnose replay ended with {process.returncode}")
    return took, used.ru_utime + used.ru_stime


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
