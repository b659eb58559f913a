"""Runs appended to one file: ``python -m benchmarks.appended CORPUS [--pairs 40] [--seed 1]``.

Two labelled logs of a corpus become one: a failed one before a failed or a healthy one, and a healthy one before a failed one.
The answer should be the one of the last log alone, with its line in that log. The logs are not of one job, so what tells of a
new run in practice (the same first lines again) is mostly missing. With ``--script`` the same job script begins each of them,
and the first log stands there three times, so that the file holds four runs.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import table
from diagnose.diagnosis.finding import Finding
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.reading.sources import Source

_LARGEST = 400_000
_TIMES = 3
_SCRIPT = """== Prolog of the job {job} ==
Running on host gpu-{host} with 8 devices each
Working directory is /scratch/users/mia/garden
Loading module compilers/gcc-12 and module toolkit/cuda-12
Arguments: --width 512 --depth 24 --data /scratch/data/words --out /scratch/out/{job}
Data are staged to the local disk, in 31 files
"""
_KINDS = (("failed", "failed"), ("failed", "healthy"), ("healthy", "failed"))


@dataclass(frozen=True, slots=True)
class Log:
    """One labelled log of one file."""

    name: str
    kind: str
    text: bytes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.appended", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("corpus", type=Path, help="a folder with labels.tsv")
    parser.add_argument("--pairs", type=int, default=40, help="of each kind (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--script", action="store_true", help="four runs of one job script; the last one is the other log")
    given = parser.parse_args(arguments)
    logs = _logs(given.corpus)
    matcher, dice = Matcher(load(), reserved=EARLY), random.Random(given.seed)
    rows, wrong = [], []
    for first, last in _KINDS:
        right = total = 0
        for _ in range(given.pairs):
            one, other = (dice.choice([log for log in logs if log.kind == kind]) for kind in (first, last))
            if one is other:
                continue
            total += 1
            if given.script:
                one, other = _with_script(one, range(_TIMES)), _with_script(other, (_TIMES,))
            if (told := _told(one, other, matcher)) is None:
                right += 1
            else:
                wrong.append(told)
        rows.append((f"{first}, then {last}", str(total), f"{100 * right / total:.1f} %"))
    print(table(("runs", "pairs", "as the last alone"), rows), *wrong, sep="\n")
    return 0


def _logs(corpus: Path) -> list[Log]:
    logs = []
    for row in (corpus / "labels.tsv").read_text("utf-8").splitlines()[1:]:
        name, _, reason, *_, note = row.split("\t")
        path = corpus / name
        if "AMBIGUOUS" in note or not path.is_file():
            continue
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if len(text) <= _LARGEST:
            logs.append(Log(name, "healthy" if reason == "healthy" else "failed", text.rstrip(b"\n") + b"\n"))
    return logs


def _with_script(log: Log, runs: Sequence[int]) -> Log:
    text = b"".join(_SCRIPT.format(job=881234 + 57 * run, host=run % 2).encode() + log.text for run in runs)
    return Log(log.name, log.kind, text)


def _told(one: Log, other: Log, matcher: Matcher) -> str | None:
    """What is wrong with the answer for both, or None."""
    alone, both = _finding(other.text, matcher), _finding(one.text + other.text, matcher)
    behind = both.root is None or both.root.event.line > one.text.count(b"\n")
    if both.reason == alone.reason and behind:
        return None
    where = "" if both.root is None else f" in line {both.root.event.line}"
    return f"{one.name} + {other.name}: {both.reason}{where}, not {alone.reason}"


def _finding(text: bytes, matcher: Matcher) -> Finding:
    job = Job("appended", [Source("log", Path("log"))], matcher)
    job.feed(0, text)
    job.close(0)
    finding = job.finding(job.evidence())
    job.compression.kept.close()
    return finding


if __name__ == "__main__":
    sys.exit(main())
