"""How long does a page take, and how large is it, with a full database?

    python -m benchmarks.pages [--jobs 100000 --failures 50000 --lines 10000000]

A database is filled (10,000 jobs, 5,000 failures, half of them in one group, a million kept lines, if nothing else is said), a
service is started on it, and each page is requested over HTTP. Printed are

- the server's time: median and 95th percentile, from sending the request to the last byte; other work on the machine counts
  too;
- the processor time that the service took for it, which other work hardly changes;
- the transfer; and the goals: 300 ms and 300 kB.

``--data DIR`` keeps the database in a folder, and uses the one that is there.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import table
from benchmarks.pages.filling import Size, fill
from service.store import Store

GOAL_S, GOAL_BYTES = 0.3, 300_000


def pages_of(size: Size) -> list[str]:
    """Every page, with the filters that ask most of the database."""
    last, some = size.last, f"job-{size.jobs - 1}"
    return [
        *("", "?range=90d", "?node=gpu-0001", "?user=user7&range=90d", "?cluster=alps&range=90d"),
        *("shift", "shift?range=30d", "breakdowns", "breakdowns?by=team&range=90d", "breakdowns?by=image&range=90d"),
        *("failures", "failures?range=90d", "failures?q=case+17", "failures?user=user7", "failures/1", "failures/7"),
        *("jobs", "jobs?q=99", "jobs?q=no-such-job", "jobs?state=failed", "jobs?state=at_risk", "jobs?node=gpu-0001"),
        *(f"jobs/{some}", f"jobs/{last}", f"jobs/{some}/log", f"jobs/{last}/log", f"jobs/{last}/log?q=about+7"),
        *(f"jobs/{last}/log?q=nothing+has+this", f"jobs/{last}/log?rank=7", f"jobs/{last}/ticket"),
        *("nodes", "nodes/gpu-0001", "actions", "actions?state=succeeded", f"actions/{size.failures}"),
        *("rules", "rules?q=nccl", "rules/xid-ecc", "model", "model?range=90d"),
        *("search?q=gpu", "search?q=job-9", "search?q=case+17", "search?q=nothing+has+this"),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--failures", type=int, default=5_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--pages", nargs="*", help="only these, such as jobs?q=99")
    parser.add_argument("--data", type=Path, help="a folder for the database; it is kept")
    chosen = parser.parse_args(arguments)
    size = Size(chosen.jobs, chosen.failures, chosen.lines)
    with tempfile.TemporaryDirectory() as folder:
        data = chosen.data or Path(folder) / "data"
        _filled(data, size)
        rows, worst = measured(data, chosen.pages or pages_of(size), chosen.rounds)
    print(table(("page", "median ms", "p95 ms", "CPU ms", "kB"), rows))
    print(f"\nworst of all against the goals (300 ms, 300 kB): {worst:.2f}")
    return 1 if worst > 1 else 0


def _filled(data: Path, size: Size) -> None:
    if (data / "diagnose.db").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    store = Store.in_folder(data)
    store.migrate()
    began = time.monotonic()
    fill(store, size, time.time())
    store.close()
    megabytes = (data / "diagnose.db").stat().st_size / 1e6
    print(f"filled in {time.monotonic() - began:.0f} s: {megabytes:,.0f} MB", file=sys.stderr)


def measured(data: Path, pages: list[str], rounds: int) -> tuple[list[tuple[str, ...]], float]:
    """A row for each page, and the worst of all figures as a share of its goal."""
    words = [sys.executable, "-m", "diagnose", "serve", "--data", str(data), "--port", "0", "--log-level", "error"]
    rows: list[tuple[str, ...]] = []
    worst = 0.0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            for page in pages:
                asked(port, page, 1)  # loads templates and fills caches
                began = _processor_s(process.pid)
                times, size = asked(port, page, rounds)
                took = (_processor_s(process.pid) - began) / rounds
                p95 = sorted(times)[int(len(times) * 0.95)]
                worst = max(worst, p95 / GOAL_S, size / GOAL_BYTES)
                milliseconds = (f"{1000 * value:.0f}" for value in (statistics.median(times), p95, took))
                rows.append((f"/ui/{page}", *milliseconds, f"{size / 1000:.0f}"))
        finally:
            process.terminate()
    return rows, worst


def _processor_s(process: int) -> float:
    """What a process and all its threads have used of the processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(port: int, page: str, rounds: int) -> tuple[list[float], int]:
    """(seconds of each request, size of the answer)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, size = [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        connection.request("GET", f"/ui/{page}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{page}: {answer.status} {body[:300]!r}")
        times.append(time.perf_counter() - began)
        size = len(body)
    connection.close()
    return times, size


if __name__ == "__main__":
    sys.exit(main())
