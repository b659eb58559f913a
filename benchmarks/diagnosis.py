"""What the diagnosis costs: ``python -m benchmarks.diagnosis``.

It measures the time of the report, next to the time of compressing the same log. The logs are the mixed log, a clean one, logs
in which 30 % of the lines look like errors (the time must grow with the length only), a million tracebacks, and a log of 100
MB. Each child runs alone on one core. Printed are medians of repetitions, and the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ROOT, Failed, pin, run
from benchmarks.mixed.log import Log

CACHE = ROOT / "benchmarks" / ".cache"
ERRORS = (
    "[rank{rank}]: RuntimeError: CUDA error: an illegal memory access was encountered {n}\n",
    "E0102 03:04:{second:02d}.123 4711 torch/distributed/elastic/multiprocessing/api.py:826] "
    "failed (exitcode: 1) local_rank: {rank} (pid: {n})\n",
    "gpu{node:03d}:3101:{n} [3] NCCL WARN NET/IB : Got completion from peer 10.1.0.{node}<{n}> with status=12 opcode=0 len=0 "
    "vendor err 129\n",
    'Traceback (most recent call last):\n  File "/opt/a{rank}.py", line {n}, in main\n    foo(x)\nValueError: bad value {n}\n',
    "slurmstepd: error: *** STEP {n}.0 ON gpu{node:03d} CANCELLED AT 2026-01-02T03:04:05 ***\n",
)
STEP = (
    "[rank{rank}]:  [2026-03-04 05:16:{second:02d}] iteration {n:8d}/ 9000000 | consumed samples: {samples:12d} | elapsed time"
    " per iteration (ms): {ms:.1f} | learning rate: 8.475000E-05 | global batch size:   512 | lm loss: {loss:.6E} |"
    " loss scale: 1.0 | grad norm: {norm:.3f} |\n"
)


def lines(share: float) -> Iterator[str]:
    """Megatron's metric lines, a share of them replaced by errors of several kinds."""
    chance = random.Random(1)
    n = 0
    while True:
        n += 1
        names = {"n": n, "rank": n % 64, "node": n % 250, "second": n % 60, "samples": n * 512}
        if chance.random() < share:
            yield chance.choice(ERRORS).format(**names)
        else:
            yield STEP.format(**names, ms=5000 + chance.random() * 100, loss=6 + chance.random() / 10, norm=chance.random())


def different(*, loud: bool) -> Iterator[str]:
    """As many lines as the diagnosis reads, no two alike, calm or all like failures. No rule knows them, so all are kept."""
    chance = random.Random(2)
    words = "amber brook cedar delta ember frost grove heron inlet jetty knoll larch maple north olive pearl quartz".split()
    for _ in range(12_500):
        text = " ".join(chance.choice(words) for _ in range(chance.randint(5, 12)))
        yield f"ERROR {text} failed at {chance.choice(words)}\n" if loud else f"{text}\n"


def tracebacks() -> Iterator[str]:
    for n in range(1_000_000):
        yield f'Traceback (most recent call last):\n  File "/a.py", line {n % 500}, in f\n    foo(x)\nValueError: bad {n}\n'


def one_traceback(size: int) -> Iterator[str]:
    yield "Traceback (most recent call last):\n"
    for n in range(size // 62):
        yield f'  File "/opt/recursion.py", line {n}, in call_number_{n}\n    deeper(x)\n'
    yield "RecursionError: maximum recursion depth exceeded\n"


def made(name: str, texts: Iterator[str] | None, size: float) -> Path:
    """The log of that name, written once."""
    path = CACHE / f"diagnosis-{name}.log"
    if path.exists():
        return path
    CACHE.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        if texts is None:
            for block in Log().blocks(int(size)):
                file.write(block)
        else:
            for text in texts:
                file.write(text.encode())
                if file.tell() >= size:
                    break
    part.rename(path)
    return path


def child(path: str) -> None:
    """Read one log from the first byte to the report, and time the parts."""
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import find

    matcher = Matcher(load())
    job = Job("job", find([path]).sources, matcher)
    begin = time.process_time()
    for chunk in job.sources[0].chunks():
        job.feed(0, chunk)
    job.close(0)
    compressed = time.process_time()
    report = job.report()
    end = time.process_time()
    told = {
        "cpu_s": end - begin,
        "compress_s": compressed - begin,
        "report_s": end - compressed,
        "lines": report.compression.lines_in,
        "kept": report.compression.lines_kept,
        "reason": report.diagnosis.reason,
    }
    print(json.dumps(told))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        child(chosen.child)
        return 0
    size = chosen.mb * 1e6
    logs = {
        "mixed": made(f"mixed-{chosen.mb:g}", None, size),
        "clean": made(f"clean-{chosen.mb:g}", lines(0), size),
        "30 % errors, a quarter": made(f"errors-{chosen.mb / 4:g}", lines(0.3), size / 4),
        "30 % errors, half": made(f"errors-{chosen.mb / 2:g}", lines(0.3), size / 2),
        "30 % errors": made(f"errors-{chosen.mb:g}", lines(0.3), size),
        "different lines": made("different", different(loud=False), 1e12),
        "different lines, all loud": made("different-loud", different(loud=True), 1e12),
        "a million tracebacks": made("tracebacks", tracebacks(), 1e12),
        "one traceback": made("one-traceback", one_traceback(100_000_000), 1e12),
    }
    core = pin(chosen.core)
    print(f"Each child alone on core {core}, {chosen.repeats} repetitions, medians; MB are 1e6 bytes, s is CPU time.\n")
    header = (
        "log",
        "MB",
        "lines",
        "kept",
        "compress s",
        "report s",
        "report/compress",
        "MB/s",
        "of clean",
        "peak MB",
        "reason",
    )
    rows = [header]
    clean: float | None = None
    for name, path in logs.items():
        try:
            readings = [
                run([sys.executable, "-m", "benchmarks.diagnosis", "--child", str(path)]) for _ in range(chosen.repeats + 1)
            ][1:]  # the first run fills the caches of rules
        except Failed as error:
            print(f"failed: {name}: {error}", file=sys.stderr)
            return 1
        told = readings[0].told
        compress = statistics.median(reading.told["compress_s"] for reading in readings)
        report = statistics.median(reading.told["report_s"] for reading in readings)
        mb = path.stat().st_size / 1e6
        per_mb = (compress + report) / mb
        if name == "clean":
            clean = per_mb
        rows.append(
            (
                name,
                f"{mb:.0f}",
                f"{told['lines']:,}",
                f"{told['kept']:,}",
                f"{compress:.2f}",
                f"{report:.2f}",
                f"{100 * report / compress:.0f} %",
                f"{1 / per_mb:.1f}" if per_mb > 0.1 else f"{1 / per_mb:.0f}",
                f"{per_mb / clean:.2f}" if clean else "-",
                f"{max(reading.peak_mb for reading in readings):.0f}",
                told["reason"],
            )
        )
    widths = [max(len(row[index]) for row in rows) for index in range(len(header))]
    for row in rows:
        cells = [
            cell.ljust(width) if index in (0, 10) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
