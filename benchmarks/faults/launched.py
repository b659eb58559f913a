"""One job under torchrun: a file for what each rank prints, and one for what the launcher itself says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.faults.plan import Plan

_RANK = Path(__file__).with_name("rank.py")


def launch(plan: Plan, folder: Path) -> Path:
    """The launcher's output. The ranks' own lie beside it, in the folders that torchrun makes."""
    folder.mkdir(parents=True)
    said = folder / "launcher.log"
    words = ["--nproc-per-node", str(plan.ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    words += ["--shutdown-timeout", "5", "--redirects", "3", "--log-dir", str(folder / "ranks")]
    command = [sys.executable, "-m", "torch.distributed.run", *words, str(_RANK), plan.fault, str(plan.victim)]
    with said.open("wb") as out:
        subprocess.run(command, stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    return said
