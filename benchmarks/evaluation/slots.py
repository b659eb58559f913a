"""Processors of simulated nodes: slots with a share of this machine's processors that never grows.

Simulated nodes share the processors of one machine. Without slots, a node would get faster while others are idle, as no real
one does. A slot is a control group (version 1) with a quota of processor time. The groups weigh so much
that other programs of the machine hardly disturb them; a niceness would not do that between sessions.

As a program, ``python slots.py FOLDER KIND COMMAND...`` runs a command in a free slot, and notes how much processor time it
took. It uses the standard library only, and starts quickly.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 50_000
_WEIGHT = 262_144
"""the most that there is; others have 1024"""


@contextlib.contextmanager
def heavy(name: str) -> Iterator[Path]:
    """This process and all that it starts, before all others of the machine."""
    if not (_GROUPS / "cpu.shares").exists():
        raise RuntimeError("this needs control groups of version 1 with the controller cpu, and root")
    group = _GROUPS / name
    group.mkdir()
    (group / "cpu.shares").write_text(str(_WEIGHT))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield group
    finally:
        for one in [*group.iterdir(), group]:
            if one.is_dir():
                for pid in (one / "cgroup.procs").read_text().split():
                    with contextlib.suppress(OSError):
                        (_GROUPS / "cgroup.procs").write_text(pid)
                one.rmdir()


def make(folder: Path, group: Path | None, kinds: Mapping[str, int], speed: float) -> None:
    """So many slots of each kind. ``speed``: processors that a slot has; without a group it has what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*-*"):
        old.unlink()
    for kind, many in kinds.items():
        for number in range(many):
            own = ""
            if group is not None:
                slot = group / f"{kind}-{number}"
                slot.mkdir(exist_ok=True)
                (slot / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (slot / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * speed)))
                own = str(slot)
            (folder / f"{kind}-{number}").write_text(own)


def _enter(folder: Path, kind: str) -> None:
    """Take a free slot, until this process ends. One that ended a moment ago may still hold its own."""
    for _ in range(200):
        for path in sorted(folder.glob(f"{kind}-*")):
            held = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(held)
                continue
            if group := path.read_text():
                Path(group, "cgroup.procs").write_text(str(os.getpid()))
            return
        time.sleep(0.02)
    raise SystemExit(f"no {kind} is free in {folder}")


def main() -> int:
    folder, kind, *command = sys.argv[1:]
    _enter(Path(folder), kind)
    began = time.time()
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = {"kind": kind, "command": command, "at": began, "wall_s": time.time() - began}
    with open(Path(folder, "ledger"), "a") as ledger:
        ledger.write(json.dumps({**row, "cpu_s": used.ru_utime + used.ru_stime}) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
