"""Run one piece of work: ``python -m diagnose.evaluate.carry ORDER.json``, on the node that it is for; ``-`` reads the order.

- What the command wrote is moved to its place only if it ended well, in one step for each shard: what is there is whole.
- It ends with whoever started it, and its command ends with it, however that happens: a piece never runs on unseen.
- While it runs it holds a lock in the folder of the results. Who takes over waits until nobody holds it any more.

It uses the standard library only, and starts quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

WROTE_NOTHING, CANNOT_START, STOPPED = 120, 121, 143
"""its status where the command wrote nothing, could not be started, or was stopped"""
_PR_SET_PDEATHSIG = 1
_GRACE_S = 5.0
_LOWER = 5
"""how much nicer a piece of work is than who started it: an evaluation gives way"""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run."""

    key: str
    command: tuple[str, ...]
    results: str
    """the folder of the evaluation"""
    scratch: str
    """a folder of its own, for what it writes"""
    outputs: str
    """the folder that it is told to write to, in that one"""
    log: str
    moves: tuple[tuple[str, str], ...]
    """from there, once it has ended well, to here"""
    environment: Mapping[str, str] = field(default_factory=dict)
    processors: int = 1

    def text(self) -> str:
        return json.dumps(asdict(self))


def read(text: str) -> Order:
    given = json.loads(text)
    moves = tuple((first, second) for first, second in given["moves"])
    return Order(**{**given, "command": tuple(given["command"]), "moves": moves})


def carry_out(order: Order) -> int:
    """The exit status of the command, or one of ours."""
    with alive(Path(order.results)):
        shutil.rmtree(order.scratch, ignore_errors=True)
        Path(order.outputs).mkdir(parents=True)
        Path(order.log).parent.mkdir(parents=True, exist_ok=True)
        try:
            status = _run(order)
            if status == 0:
                status = _put_in_place(order)
        finally:
            shutil.rmtree(order.scratch, ignore_errors=True)
        return status


@contextlib.contextmanager
def alive(results: Path) -> Any:
    """Hold the lock that says that somebody still works in this folder."""
    results.mkdir(parents=True, exist_ok=True)
    held = os.open(results / "alive", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield
    finally:
        os.close(held)


def nobody_alive(results: Path, patience_s: float) -> bool:
    """Whether all who worked in this folder have ended, within this time."""
    held = os.open(results / "alive", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
                time.sleep(0.05)
    finally:
        os.close(held)


def _run(order: Order) -> int:
    running: list[subprocess.Popen[bytes]] = []
    _stop_with(running)  # first: it may be told at any moment
    with open(order.log, "ab", buffering=0) as log:
        try:
            child = subprocess.Popen(  # noqa: S603  # the command of the plan
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **order.environment},
                start_new_session=True,
                preexec_fn=lambda: _die_with_parent(signal.SIGKILL),  # nothing else runs in this process
            )
        except OSError as error:
            log.write(f"diagnose: {order.command[0]} cannot be started: {error}\n".encode())
            return CANNOT_START
        running.append(child)
        status = child.wait()
        _end_group(child.pid, signal.SIGKILL)  # what it left behind
    return status if status >= 0 else 128 - status


def _stop_with(running: list[subprocess.Popen[bytes]]) -> None:
    """Told to stop, it gives its command a moment to end, and then ends it."""

    def stop(_: int, __: FrameType | None) -> None:
        for child in running:
            _end_group(child.pid, signal.SIGTERM)
            until = time.monotonic() + _GRACE_S
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            _end_group(child.pid, signal.SIGKILL)
        os._exit(STOPPED)

    with contextlib.suppress(ValueError):  # not in the main thread: the caller stops it otherwise
        signal.signal(signal.SIGTERM, stop)


def _end_group(leader: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, how)


def _put_in_place(order: Order) -> int:
    missing = [source for source, _ in order.moves if not _holds(source)]
    if missing:
        with open(order.log, "a") as log:
            log.write(f"diagnose: the command ended well, but it wrote nothing to {missing[0]}\n")
        return WROTE_NOTHING
    for source, target in order.moves:
        _flush(source)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(target):  # else somebody was first, and his stays
            os.rename(source, target)
        _flush_folder(os.path.dirname(target))
    return 0


def _holds(path: str) -> bool:
    """A file, or a folder that is not empty; and no link, which could lead anywhere."""
    return not os.path.islink(path) and (os.path.isfile(path) or (os.path.isdir(path) and bool(os.listdir(path))))


def _flush(path: str) -> None:
    """To the disk: a node may lose its power right after."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    for folder, _, names in os.walk(path):
        for name in names:
            if os.path.isfile(os.path.join(folder, name)):
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())


def _flush_folder(path: str) -> None:
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _die_with_parent(how: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(how))


def main() -> int:
    parent = os.environ.get("DIAGNOSE_COORDINATOR")
    _die_with_parent(signal.SIGTERM)
    if parent is not None and os.getppid() != int(parent):
        return STOPPED
    os.nice(_LOWER)
    return carry_out(read(sys.stdin.read() if sys.argv[1] == "-" else Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    sys.exit(main())
