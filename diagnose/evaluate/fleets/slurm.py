"""Slurm: an array job of workers, each with what a trial needs. They come when Slurm has room, and go when others need it.

Each worker is a node to the dispatch, with one place and its processors. Orders and ends are files in the folder of results, so
workers need nothing but that folder. A worker that is preempted, killed or silent is a node that is gone: what it ran runs
again. Each coordinator has a folder of its own, so the workers of one that was killed hear nothing more, and end.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.evaluate.carry import Order
from diagnose.evaluate.fleets.fleet import Ended
from diagnose.evaluate.fleets.worker import BEAT_S, GONE_S, age, put
from diagnose.evaluate.suite import Node

_TURN_S = 0.1


class Slurm:
    """``options``: further options of sbatch, such as ``--partition=low`` and ``--gpus=1``."""

    def __init__(
        self,
        results: Path,
        workers: int,
        processors: int,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = results / "workers" / str(time.time_ns())
        self._processors = processors
        self._environment = environment
        self._folder.mkdir(parents=True)
        self._running: dict[Path, str] = {}
        self._count = 0
        self._workers, self._options = workers, options
        (self._folder / "coordinator").touch()
        self._job = self._submit(workers, options)
        self._missing_since: float | None = None
        self._closing = threading.Event()
        # In a thread: whatever the coordinator does meanwhile, such as a diagnosis, it is alive.
        threading.Thread(target=self._beat, name="sign-of-life", daemon=True).start()

    def _submit(self, workers: int, options: Sequence[str]) -> str:
        python_path = ":".join(path for path in sys.path if path)
        command = [
            "sbatch",
            "--parsable",
            "--job-name=evaluate",
            f"--array=1-{workers}",
            f"--cpus-per-task={1 + self._processors}",
            "--requeue",
            "--nice=100",
            f"--output={self._folder}/worker-%a.log",
            f"--export=ALL,PYTHONPATH={python_path}",
            *options,
            f"--wrap=exec {shlex.quote(sys.executable)} -m diagnose.evaluate.fleets.worker {shlex.quote(str(self._folder))}",
        ]
        try:
            done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)  # noqa: S603
        except OSError as error:
            raise DiagnoseError(f"sbatch cannot be started: {error}", remedy="run it where Slurm's commands are") from None
        if done.returncode:
            raise DiagnoseError(f"sbatch refuses: {done.stderr.strip()[:500]}", remedy="check the options given with --sbatch")
        return done.stdout.strip().partition(";")[0]

    def _beat(self) -> None:
        while not self._closing.wait(BEAT_S):
            with contextlib.suppress(OSError):  # storage that is away comes back, or the workers end
                (self._folder / "coordinator").touch()

    def nodes(self) -> Sequence[Node]:
        alive = [path.parent.name for path in sorted(self._folder.glob("*/here")) if age(path) < GONE_S]
        if alive:
            self._missing_since = None
        else:
            self._ask_for_more()
        return [Node(name, 1, self._processors) for name in alive]

    def _ask_for_more(self) -> None:
        """Without any worker for a while: if Slurm does not know the array job any more, nobody comes by himself."""
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < GONE_S:
            return
        self._missing_since = now
        command = ["squeue", "-h", "-j", self._job, "-o", "%i"]
        said = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)  # noqa: S603
        if "Invalid job id" in said.stderr or (said.returncode == 0 and not said.stdout.strip()):
            self._job = self._submit(self._workers, self._options)

    def start(self, order: Order, node: str, *, on_place: bool) -> None:
        self._count += 1
        self._running[self._folder / node / f"end-{self._count}.json"] = order.key
        put(self._folder / node / f"order-{self._count}.json", order.text())

    def ended(self, patience_s: float) -> list[Ended]:
        until = time.monotonic() + patience_s
        while True:
            found = [self._end(path) for path in list(self._running) if path.exists()]
            if found or time.monotonic() > until:
                return found
            time.sleep(_TURN_S)

    def _end(self, path: Path) -> Ended:
        said = json.loads(path.read_text())
        return Ended(self._running.pop(path), said["status"], said["begin"], said["end"])

    def forget(self, memory: Path) -> None:
        """Nothing: what is in the memory of a node goes with the job, if Slurm is set up so (job_container/tmpfs)."""

    def stop(self) -> None:
        subprocess.run(["scancel", self._job], env=self._environment, capture_output=True, timeout=60)  # noqa: S603, S607
        until = time.monotonic() + GONE_S
        while list(self._folder.glob("*/here")) and time.monotonic() < until:
            time.sleep(_TURN_S)

    def close(self) -> None:
        self._closing.set()
        shutil.rmtree(self._folder, ignore_errors=True)
