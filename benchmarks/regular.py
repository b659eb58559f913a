"""How much is kept of complete logs: ``python -m benchmarks.regular [--json] LOG_OR_FOLDER...``.

Each log is read three times: with the shipped rules and no folds, with folds and failure rules only, and with both. Printed is
the share of bytes kept, in total and as a median. Then every folded line is checked: if it sounds like a failure, a copy of it
(equal but for times) must have been kept. Lines without one are counted and shown, and the exit status is then 1. Last, the
loss that a plain search finds in the text is compared with the series: its first, last and least value.

    python -m benchmarks.regular ../shared/corpus/whole
    python -m benchmarks.regular --mixed 20                      # a log of the generator, 20 MB
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.measure import table
from benchmarks.parts import cached_log
from diagnose.compression.folds import KEEP, masked
from diagnose.diagnosis.likeness import sounds
from diagnose.job import Job
from diagnose.knowledge.metrics import shipped_metrics
from diagnose.knowledge.rules import RuleSet, load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.series import Series
from diagnose.reading.prefixes import body_start
from diagnose.reading.sources import Source, find

_TIMES = re.compile(rb"\d[\d:.,/TZ+-]*[:-]\d[\d:.,/TZ+ -]*")
_BIG = 1_000_000
_FEWEST = 3
_HEAD = 100
_ASKED = ("loss", "val_loss", "accuracy", "reward", "lr", "grad_norm", "perplexity")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_NAMES = sorted((name for name, (quantity, _) in shipped_metrics().names.items() if quantity in _ASKED), key=len, reverse=True)
_PLAIN = re.compile(
    rf"(?i)(?<![a-z])((?:[a-z]+[/_. -]){{0,3}}(?:{'|'.join(name.replace('_', '[ _/-]?') for name in _NAMES)}))"
    rf"[\"']?(?:\s*[:=|]\s*|\s+is\s+|\s+)[\"'(\[]*({_NUMBER})(?![\w/])"
)
_ABOUT = re.compile(r"(?i)scale|weight|min|max|best|target|threshold|decay|warmup|base|init")


@dataclass(slots=True)
class Row:
    """One log."""

    name: str
    bytes_in: int
    rules: float
    """share of the bytes that is kept with rules only"""
    folds: float
    both: float
    lost: list[str] = field(default_factory=list)
    """lines that sound like a failure and folded although no copy of them was kept"""
    seconds: float = 0.0
    loss: str = "-"
    """whether the loss that a plain search finds is in the series"""
    series: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regular", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("logs", nargs="*", metavar="LOG_OR_FOLDER", help="complete logs; each file is a job")
    parser.add_argument("--mixed", type=float, metavar="MB", help="also a mixed log of the generator of this size")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    sources = [source for path in given.logs for source in find([path]).sources if not source.name.endswith("labels.tsv")]
    if given.mixed:
        sources.append(Source("mixed", cached_log(given.mixed, 1)))
    if not sources:
        parser.error("name a log, a folder of logs, or --mixed MB")
    rules = load()
    shipped = Matcher(rules, reserved=EARLY)
    failures = Matcher(RuleSet.of(rule for rule in rules if rule.family == "failures"), reserved=EARLY)
    rows = [_row(source, shipped, failures) for source in sources]
    print(json.dumps([asdict(row) for row in rows], indent=1) if given.json else _text(rows))
    return 1 if any(row.lost for row in rows) else 0


def _row(source: Source, shipped: Matcher, failures: Matcher) -> Row:
    plain = _read(source, shipped, 0)
    alone = _read(source, failures, KEEP)
    begin = time.process_time()
    both = _read(source, shipped, KEEP)
    seconds = time.process_time() - begin
    lost = _lost(plain, both)
    counts = [job.compression.counts for job in (plain, alone, both)]
    rules, folds, together = (one.bytes_kept / max(1, one.bytes_in) for one in counts)
    named = both.compression.streams[0].named
    loss = _verdict(_searched(b"".join(source.chunks()).decode("utf-8", "replace")), named)
    row = Row(Path(source.name).name, counts[0].bytes_in, rules, folds, together, lost, seconds, loss, sorted(named))
    for job in (plain, alone, both):
        job.compression.kept.close()
    return row


def _read(source: Source, matcher: Matcher, fold_after: int) -> Job:
    job = Job(source.name, [source], matcher, fold_after)
    for chunk in source.chunks():
        job.feed(0, chunk)
    job.close(0)
    return job


def _lost(plain: Job, both: Job) -> list[str]:
    """The lines that sound like a failure, are only in ``plain``, and have no copy in ``both``."""
    left = Counter((line.line, line.text) for line in both.compression.kept)
    copies = {_copy(text) for _, text in left}
    begun = {(number, text[:_HEAD]) for number, text in left}  # a long line may have lost the middle of its lists
    lost = []
    for line in plain.compression.kept:
        if left[(line.line, line.text)]:
            left[(line.line, line.text)] -= 1
        elif (line.line, line.text[:_HEAD]) in begun:
            continue
        elif sounds(line.text, body_start(line.text)) and _copy(line.text) not in copies:
            lost.append(f"{line.line}: {line.text[:200].decode('utf-8', 'replace')}")
    return lost


def _copy(text: bytes) -> bytes:
    """What all copies of a line have in common: without times, speaker, and the number of copies on one line."""
    words = b" ".join(_TIMES.sub(b"", text[body_start(text) :]).split())
    period = (words + words).find(words, 1)
    return words[:period] if len(words) > 1 else words


def _searched(text: str) -> dict[tuple[str, str], list[float]]:
    """The values behind each name that has a number behind it three times or more: of all lines, and of those of one mask, as
    some programs tell a loss in two kinds of line, and once more at their end.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in re.split(r"[\n\r]", text):
        for name, value in _PLAIN.findall(line):
            if not _ABOUT.search(name):
                plain = " ".join(name.lower().split())
                found[plain, ""].append(float(value))
                found[plain, masked(line.encode())].append(float(value))
    return {name: values for name, values in found.items() if len(values) >= _FEWEST}


def _losses(found: Mapping[tuple[str, str], list[float]]) -> list[list[float]]:
    """Those that are a loss, of training or not."""
    return [values for (name, _), values in found.items() if "loss" in name or "entropy" in name]


def _verdict(found: Mapping[tuple[str, str], list[float]], series: Mapping[str, Series]) -> str:
    """Whether a log's loss is in its series: ``-`` none is printed, ``missing``, ``other`` values, or ``right``."""
    printed = _losses(found)
    if not printed:
        return "-"
    ours = [series[name] for name in ("loss", "val_loss") if name in series]
    if not ours:
        return "missing"
    ends = {(one.first, one.last, one.least) for one in ours}
    return "right" if any((values[0], values[-1], min(values)) in ends for values in printed) else "other"


def _text(rows: Sequence[Row]) -> str:
    def share(value: float) -> str:
        return f"{100 * value:.2f} %"

    size = sum(row.bytes_in for row in rows)
    columns = [[getattr(row, name) for row in rows] for name in ("rules", "folds", "both")]
    together = [sum(value * row.bytes_in for value, row in zip(column, rows, strict=True)) / size for column in columns]
    head = ("log", "bytes", "rules only", "folds only", "both", "lost", "loss", "series")
    body: list[Sequence[str]] = [
        (
            row.name, f"{row.bytes_in:,}", share(row.rules), share(row.folds), share(row.both), str(len(row.lost)), row.loss,
            str(len(row.series)),
        )
        for row in sorted(rows, key=lambda row: -row.both * row.bytes_in)
    ]  # fmt: skip
    body.append(("together", f"{size:,}", *map(share, together), str(sum(len(row.lost) for row in rows)), "", ""))
    body.append(("median", "", *(share(median(column)) for column in columns), "", "", ""))
    biggest = max((row.both for row in rows if row.bytes_in > _BIG), default=0.0)
    speed = size / 1e6 / max(1e-9, sum(row.seconds for row in rows))
    lines = [table(head, body), "", f"most of a log above 1 MB: {share(biggest)}; read with both at {speed:.0f} MB/s"]
    said = Counter(row.loss for row in rows)
    printed = sum(said.values()) - said["-"]
    lines.append(
        f"a loss is printed in {printed} logs; found in {printed - said['missing']}, its ends right in {said['right']}"
    )
    lines += [f"lost: {row.name}:{line}" for row in rows for line in row.lost[:20]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
