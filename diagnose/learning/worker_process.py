"""The worker process, seen from its parent: it is started when there is something to do, and again when it ends.

``feed`` and ``order`` return at once. Kept lines go on a bounded queue. What does not fit is counted and dropped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from diagnose.backoff import Backoff
from diagnose.learning.wire import send
from diagnose.matching.scan import KEPT, Scan

if TYPE_CHECKING:
    from diagnose.model.settings import Settings

log = logging.getLogger("diagnose.learning")

WORKER = (sys.executable, "-m", "diagnose.learning.worker")
"""the command of a worker for the command line; a service has its own"""
_MOST_WAITING, _MOST_BYTES = 1024, 8 << 20
"""scans on the queue, and bytes of them"""
_TICK_S = 2.0
_BACKOFF = Backoff(2.0, 60.0)
_STEADY_S = 60.0
"""after so long, a worker counts as started without trouble"""


def about(rules: str | Path, settings: Settings | None, lesson_s: float | None = None) -> dict[str, Any]:
    """The first frame for a worker of the command line. ``settings``: of a model that is asked for rules. ``lesson_s``: how
    long it waits between two lessons, if not as long as it does by itself."""
    model = asdict(settings) if settings is not None else None
    return {"rules": str(rules), "model": model, "learn": True, "redact": True, "lesson_s": lesson_s}


class WorkerProcess:
    """Its own threads call ``receive`` and ``ended``. Any thread may call the rest."""

    def __init__(
        self,
        command: Sequence[str],
        about: Callable[[], dict[str, Any]],
        receive: Callable[[dict[str, Any]], None],
        ended: Callable[[bool], None],
    ) -> None:
        """``about`` is its first frame, ``receive`` gets its lines, and ``ended`` is told whether it ended in order."""
        self._command, self._about, self._receive, self._ended = command, about, receive, ended
        self._scans: deque[tuple[str, str, Scan]] = deque()
        self._bytes = 0
        self._orders: deque[dict[str, Any]] = deque()
        self._wake = threading.Condition()
        self._closing = self._finishing = False
        self._child: subprocess.Popen[bytes] | None = None
        self._writer = threading.Thread(target=self._write_for_ever, name="worker-writer", daemon=True)

    def start(self) -> None:
        self._writer.start()

    def feed(self, job: str, workload: str, scans: Sequence[Scan]) -> tuple[int, int]:
        """Take what was kept of a job. Returns (lines that will be sent, lines that there was no room for)."""
        fed = missed = 0
        with self._wake:
            for scan in map(Scan.before_folding, scans):
                lines = len(scan.kept) // KEPT.size
                if not lines:
                    continue
                if len(self._scans) >= _MOST_WAITING or self._bytes + len(scan.text) > _MOST_BYTES:
                    missed += lines
                    continue
                fed += lines
                self._bytes += len(scan.text)
                self._scans.append((job, workload, scan))
            self._wake.notify()
        return fed, missed

    def order(self, head: dict[str, Any]) -> None:
        """Send a frame without lines. It goes before the lines that wait."""
        with self._wake:
            self._orders.append(head)
            self._wake.notify()

    def forget_orders(self) -> None:
        """Drop frames that were not sent yet."""
        with self._wake:
            self._orders.clear()

    def finish(self, patience_s: float) -> bool:
        """Send what waits, and let it finish what was begun. False: that took too long, and it was ended."""
        with self._wake:
            self._finishing = True
            self._wake.notify()
        self._writer.join(patience_s)
        in_time = not self._writer.is_alive()
        self.close()
        return in_time

    def close(self) -> None:
        """End it, whatever it is doing."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        child = self._child
        if child is not None:
            child.terminate()
        if self._writer.is_alive():
            self._writer.join(5)
        if child is not None:
            child.kill()
            child.wait()

    def _write_for_ever(self) -> None:
        failures = 0
        while self._wait_for_work(None):
            began = time.monotonic()
            try:
                self._run()
            except OSError as error:
                if not self._closing:
                    log.warning("the worker process has ended: %s", error)
            if self._closing or self._finishing:
                return
            failures = 1 if time.monotonic() - began > _STEADY_S else failures + 1
            with self._wake:
                self._wake.wait_for(lambda: self._closing or self._finishing, _BACKOFF.after(failures))
            if self._finishing:
                return

    def _run(self) -> None:
        """Run one process from its start to its end."""
        child = self._child = subprocess.Popen(  # noqa: S603 - our own interpreter, save in tests
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        reader = threading.Thread(target=self._read, args=(child.stdout,), name="worker-reader", daemon=True)
        reader.start()
        try:
            self._serve(child.stdin)
            if self._finishing:
                reader.join()
                child.wait()
        finally:
            in_order = self._closing or child.returncode == 0
            with contextlib.suppress(OSError):
                child.stdin.close()
            child.kill()
            reader.join(5)
            child.wait()
            self._ended(in_order)

    def _serve(self, out: IO[bytes]) -> None:
        """Send what there is to send, until the last frame."""
        send(out, self._about())
        while not self._closing:
            self._wait_for_work(_TICK_S)
            with self._wake:
                order = self._orders.popleft() if self._orders else None
                scan = self._scans.popleft() if order is None and self._scans else None
                if scan is not None:
                    self._bytes -= len(scan[2].text)
            if order is not None:
                send(out, order)
            elif scan is not None:
                job, workload, kept = scan
                send(out, {"kind": "scan", "job": job, "workload": workload}, kept.kept, kept.text)
            elif self._finishing:
                send(out, {"kind": "end"})
                return
            else:
                send(out, {"kind": "tick"})

    def _wait_for_work(self, timeout_s: float | None) -> bool:
        """Wait until there is work, or for so long. False: it is over."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._finishing or self._orders or self._scans, timeout_s)
            return not self._closing

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                log.warning("the worker process says: %s", line[:300].decode("utf-8", "replace").strip())
                continue
            self._receive(said)
        # The writer may be asleep. It notices at its next tick, because nobody reads the pipe.
