"""Runs children on one core, times them, and sums up repetitions."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}


class Failed(Exception):
    """A child failed. The text says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one child."""

    cpu_s: float
    """user and system time: of the part that the child timed itself, else of the whole child"""
    wall_s: float
    peak_mb: float
    text: str
    told: Mapping[str, Any] = field(default_factory=dict)
    """what the child printed as JSON"""


def pin(core: int | None) -> int:
    """Hold this process and its children to one core: the given one, else the last that is allowed."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[-1] if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


def run(command: Sequence[str], *, good: tuple[int, ...] = (0,), stdin: Any = subprocess.DEVNULL) -> Reading:
    """Run ``command`` to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        try:
            child = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err, cwd=ROOT, env=ENVIRONMENT)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from None
        status, usage = reap(child)
        wall = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        text = out.read().decode("utf-8", "replace")
        if status not in good:
            tail = err.read().decode("utf-8", "replace").strip().splitlines()[-3:]
            raise Failed(f"{Path(command[0]).name} ended with status {status}: {' / '.join(tail)}")
    told = json.loads(text) if text.startswith("{") and text.count("\n") == 1 else {}
    cpu = told.get("cpu_s", usage.ru_utime + usage.ru_stime)
    return Reading(cpu, told.get("wall_s", wall), usage.ru_maxrss / 1024, text, told)


def reap(child: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """Wait for ``child``. Returns its exit status and what it used."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage


@dataclass(frozen=True, slots=True)
class Spread:
    """Repetitions in short."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))

    def text(self, digits: int = 2) -> str:
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.most:.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])
