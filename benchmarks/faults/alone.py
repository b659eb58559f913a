"""Many jobs at once whose ranks nobody watches, as tasks of ``srun --kill-on-bad-exit=0``: who outlives the first tells of it.

    python -m benchmarks.faults.alone FOLDER kill-4-2 hang-8-0      # FAULT-RANKS-VICTIM -> FOLDER/kill-4-2/rank0.log …

PyTorch is imported once, and each rank is a fork: starting it anew for each rank is most of what such a job costs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults.plan import Plan
from benchmarks.faults.rank import train


def play(plans: Sequence[Plan], folder: Path) -> None:
    """Runs all, and returns when no rank is left."""
    left = {plan: _begin(plan, folder / str(plan)) for plan in plans}
    while any(left.values()):
        pid, _ = os.wait()
        for plan, ranks in left.items():
            ranks.pop(pid, None)
            if set(ranks.values()) == {plan.victim}:  # it stands still, and nobody else is there
                os.kill(next(iter(ranks)), signal.SIGKILL)


def _begin(plan: Plan, folder: Path) -> dict[int, int]:
    """The ranks of a job, by process."""
    folder.mkdir(parents=True)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(plan.ranks)}
    return {_fork(plan, rank, folder / f"rank{rank}.log", where): rank for rank in range(plan.ranks)}


def _fork(plan: Plan, rank: int, log: Path, where: dict[str, str]) -> int:
    if pid := os.fork():
        return pid
    os.environ |= {**where, "RANK": str(rank)}
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    status = 1
    with contextlib.suppress(BaseException):
        try:
            train(plan.fault, plan.victim)
            status = 0
        except BaseException:
            traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    play([Plan.read(text) for text in sys.argv[2:]], Path(sys.argv[1]))
