"""A process that stands still -> the stacks of it and its children, as text.

py-spy looks from outside. It needs the right to trace (root, or ``SYS_PTRACE``). A signal asks the process itself. It is only
sent to processes that catch it, and only if somebody said so: the same signal may mean something else to them, such as
"save and leave" before a time limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ENDING = "/stacks"
_MOST = 64
"""processes of one command: data loaders are many and say little"""
_TIMEOUT_S = 20.0
_PROC = Path("/proc")


class Dump(NamedTuple):
    """What was seen of one process."""

    pid: int
    rank: int | None
    text: str


def stacks_of(source: str) -> str:
    """The name of the source that holds the stacks of what writes ``source``."""
    return f"{source}{_ENDING}"


def is_stacks(source: str) -> bool:
    """Whether the lines of a source were taken from a process, and not printed by it."""
    return source.endswith(_ENDING)


def signal_named(name: str) -> signal.Signals | None:
    """USR1, SIGUSR1 or usr1 -> the signal; None if there is none of this name."""
    return signal.Signals.__members__.get(f"SIG{name.upper().removeprefix('SIG')}")


def processes(pid: int) -> list[int]:
    """``pid`` and its descendants, the eldest first."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:  # it grows meanwhile
        found += sorted(children.get(one, []))
    return found[:_MOST]


def look(pid: int) -> Iterator[Dump]:
    """The stacks of ``pid`` and its descendants that run Python, by py-spy. Nothing, if it is not there or not allowed."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if spy is None:
        return
    for one in processes(pid):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(  # noqa: S603 - a program and numbers
                [spy, "dump", "--nonblocking", "--pid", str(one)],
                capture_output=True,
                timeout=_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
            text = done.stdout.decode("utf-8", "replace")
            if done.returncode == 0 and "Thread" in text:
                yield Dump(one, rank_of(one), text)


def ask(pid: int, number: signal.Signals) -> int:
    """Send the signal to those of the processes that catch it. Returns how many they are."""
    sent = 0
    for one in processes(pid):
        if _catches(one, number):
            with contextlib.suppress(OSError):
                os.kill(one, number)
                sent += 1
    return sent


def rank_of(pid: int) -> int | None:
    """The rank that a launcher gave to a process."""
    with contextlib.suppress(OSError, ValueError):
        for word in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = word.partition(b"=")
            if name == b"RANK":
                return int(value)
    return None


def _parent(entry: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler. Without one the signal would end it."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return bool(int(mask, 16) >> (number - 1) & 1)
    return False
