"""How long does the study of a site's history take? ``python -m benchmarks.history [ROWS]``.

A history as ``sacct -P`` prints it is made by chance, with one bad node, and read by ``diagnose report``. Printed are the time
of the processor and whether the bad node, and no other, was found.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

HEAD = "JobIDRaw|JobID|JobName|User|Partition|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|NodeList\n"
NODES, BAD = 1000, 77
_ENDS = ("FAILED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED by 1000")


def write(path: Path, rows: int) -> None:
    dice = random.Random(3)
    begin = datetime(2026, 9, 1)
    with path.open("w") as file:
        file.write(HEAD)
        for job in range(1000, rows + 1000):
            gpus = dice.choice((1, 1, 1, 2, 8, 8, 16, 64, 512))
            many = max(1, gpus // 8)
            first = dice.randrange(1, NODES - many)
            failed = dice.random() < (0.7 if first <= BAD < first + many else 0.1 + gpus / 2000)
            state = dice.choice(_ENDS) if failed else "COMPLETED"
            ready = begin + timedelta(seconds=dice.random() * 60 * 86400)
            start = ready + timedelta(seconds=dice.expovariate(1 / 600))
            ran = int(dice.expovariate(1 / 7000))
            times = "|".join(f"{at:%Y-%m-%dT%H:%M:%S}" for at in (ready, ready, start, start + timedelta(seconds=ran)))
            nodes = f"gpu-{first:04}" if many == 1 else f"gpu-[{first:04}-{first + many - 1:04}]"
            file.write(
                f"{job}|{job}|train{dice.randrange(4000)}|u{dice.randrange(300)}|gpu|{state}|{int(failed)}:0|{times}|{ran}"
                f"|billing=8,cpu={gpus * 12},gres/gpu={gpus},node={many}|{nodes}\n"
            )


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder, "history.txt")
        write(history, rows)
        command = [sys.executable, "-m", "diagnose", "report", "--sacct", str(history), "--out", str(Path(folder, "report"))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        used = os.times()
        found = json.loads(Path(folder, "report.json").read_text())
    print(f"{rows:,} rows: {used.children_user + used.children_system:.1f} s of a processor")
    print("nodes with more failures than chance:", ", ".join(row["node"] for row in found["nodes"]["suspicious"]) or "none")


if __name__ == "__main__":
    main()
