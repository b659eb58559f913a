"""A worker of a Slurm array job: it takes orders from a folder, one at a time, until the coordinator is gone.

    python -m diagnose.evaluate.fleets.worker FOLDER

In its own folder, FOLDER/NAME, ``here`` is touched while it lives; ``order-N.json`` are orders, ``end-N.json`` what came of
them. The standard library only, as ``carry``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

BEAT_S = 1.0
GONE_S = 20.0
"""without a sign of life for this long, the other side is gone"""
_TURN_S = 0.1


def name() -> str:
    """Of this run of this worker: one that was requeued is another."""
    job = "-".join(os.environ.get(key, "0") for key in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"))
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    return f"{node}-{job}"


def put(path: Path, text: str) -> None:
    """Whole or not at all."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    os.replace(new, path)


def age(path: Path) -> float:
    """Seconds since a sign of life, by the clock of the storage that both sides share."""
    probe = path.with_name(f".clock-{os.getpid()}")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
    finally:
        probe.unlink(missing_ok=True)


class Worker:
    """The loop of one worker."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = folder / "coordinator"
        self.own = folder / name()
        self.own.mkdir(parents=True, exist_ok=True)
        self._running: list[tuple[str, float, subprocess.Popen[bytes]]] = []
        self._stopping = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        beat = 0.0
        while not self._stopping:
            if time.monotonic() - beat > BEAT_S:
                (self.own / "here").touch()
                beat = time.monotonic()
                if age(self.coordinator) > GONE_S:
                    break
            for order in sorted(self.own.glob("order-*.json")):
                self._begin(order)
            self._note_ends()
            time.sleep(_TURN_S)
        for _, _, process in self._running:
            process.terminate()
        for _, _, process in self._running:
            process.wait()
        (self.own / "here").unlink(missing_ok=True)

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True

    def _begin(self, order: Path) -> None:
        number = order.stem.partition("-")[2]
        taken = order.with_name(f"taken-{number}.json")
        os.replace(order, taken)
        environment = {**os.environ, "DIAGNOSE_COORDINATOR": str(os.getpid())}
        command = [sys.executable, "-m", "diagnose.evaluate.carry", str(taken)]
        self._running.append((number, time.time(), subprocess.Popen(command, env=environment)))  # noqa: S603  # our program

    def _note_ends(self) -> None:
        for one in list(self._running):
            number, begin, process = one
            status = process.poll()
            if status is not None:
                self._running.remove(one)
                said = {"status": status if status >= 0 else None, "begin": begin, "end": time.time()}
                put(self.own / f"end-{number}.json", json.dumps(said))


if __name__ == "__main__":
    Worker(Path(sys.argv[1])).run()
