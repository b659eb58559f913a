"""How far does the miner get alone? ``python -m benchmarks.miner CORPUS``.

All shipped filters are off. The failure rules stay, because what they know is evidence and is kept. Learning passes once over
the first half of each log of CORPUS, into one store. Then the second halves are compressed with the rules that became active.
Printed are the share of bytes that is kept of the second halves, and whether every labelled root-cause line is kept. "New
kinds" is the floor: bytes of kept lines whose first three words begin fewer than three lines of all first halves. Every rule
needs three lines.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import table
from diagnose.accuracy import labels
from diagnose.job import Job
from diagnose.knowledge.rules import RuleSet, load
from diagnose.learning.lesson import heard, learn
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.matching.shapes import shape
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start
from diagnose.reading.sources import Source, find

_WORDS = re.compile(rb"[A-Za-z_]{2,}")
_FEWEST = 3


@dataclass(slots=True)
class Half:
    """What is kept of a second half."""

    bytes_in: int = 0
    kept: int = 0
    evidence: int = 0
    """bytes that failure rules keep"""
    new: int = 0
    """bytes of unknown lines of a kind that the first halves hardly have"""
    lost: bool = False
    """its root-cause line was dropped"""


def content(path: Path) -> bytes:
    (source,) = find([str(path)]).sources
    return b"".join(source.chunks())


def cut(data: bytes, by: str) -> int:
    """Where the second half begins."""
    if by == "bytes":
        return data.index(b"\n", len(data) // 2) + 1
    at = 0
    for _ in range(data.count(b"\n") // 2):
        at = data.index(b"\n", at) + 1
    return at


def job_of(name: str, data: bytes, matcher: Matcher) -> tuple[Job, list[Scan]]:
    job = Job(name, [Source(name, None)], matcher)
    return job, [*job.feed(0, data), *job.close(0)]


def kind_of(body: bytes) -> bytes:
    """How a line begins: its first three words, whatever is between them."""
    return b" ".join(_WORDS.findall(body)[:3])


def kinds_of(data: bytes) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for line in data.split(b"\n"):
        for segment in line.split(b"\r"):
            text = clean(segment)
            found[kind_of(text[body_start(text) :])] += 1
    return found


def measured(
    name: str, data: bytes, skipped: int, matcher: Matcher, seen: Counter[bytes], root: int | None, show: Counter[bytes]
) -> Half:
    """Compress the second half ``data``, which begins after ``skipped`` lines."""
    job, scans = job_of(name, data, matcher)
    half = Half(job.compression.counts.bytes_in, job.compression.counts.bytes_kept)
    kept = set()
    for scan in scans:
        for record, text in scan.segments():
            kept.add(record.line + skipped)
            if record.rule >= 0:
                half.evidence += len(text) + 1
                continue
            body = text[body_start(text) :]
            new = seen[kind_of(body)] < _FEWEST
            half.new += new * (len(text) + 1)
            show[(b"+ " if new else b"  ") + shape(body)[:240]] += len(text) + 1
    half.lost = root is not None and root > skipped and root not in kept
    return half


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--each", action="store_true", help="a rule store for each log instead of one for all")
    parser.add_argument("--halves", choices=("lines", "bytes"), default="lines", help="what a half is half of")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="the N kept shapes with the most bytes; + is new")
    chosen = parser.parse_args(arguments)
    failures = RuleSet.of(rule for rule in load() if rule.family == "failures")
    halves, firsts, roots = {}, {}, {}
    for label in labels(chosen.corpus):
        data = content(chosen.corpus / label.file)
        at = cut(data, chosen.halves)
        firsts[label.file], halves[label.file] = data[:at], data[at:]
        roots[label.file] = label.root_cause_line[1] if label.root_cause_line else None
    groups = [[name] for name in firsts] if chosen.each else [list(firsts)]
    rows: list[tuple[str, ...]] = [("log", "bytes", "kept", "evidence", "new kinds", "root cause")]
    total = Half()
    show: Counter[bytes] = Counter()
    began = time.monotonic()
    lost = 0
    for group in groups:
        with tempfile.TemporaryDirectory() as folder:
            store = RuleStore(RuleFile(Path(folder) / "learned.db"))
            matcher = Matcher(failures)
            learn([heard(job_of(name, firsts[name], matcher)[0], store) for name in group], store, time.time())
            active = [known.rule for known in store.rules("active", family="filters")]
            seen = sum((kinds_of(firsts[name]) for name in group), Counter())
        for name in group:
            matcher = Matcher(RuleSet.of([*failures, *active]))
            half = measured(name, halves[name], firsts[name].count(b"\n"), matcher, seen, roots[name], show)
            rows.append(row(name, half, roots[name]))
            lost += half.lost
            total = Half(
                total.bytes_in + half.bytes_in, total.kept + half.kept, total.evidence + half.evidence, total.new + half.new
            )
    rows.append(row("all", total, None))
    print(table(rows[0], rows[1:]))
    print(f"\nlearned and measured in {time.monotonic() - began:.0f} s; root-cause lines dropped: {lost}")
    for key, size in show.most_common(chosen.show):
        print(f"{size:>9,}  {key.decode('utf-8', 'replace')}")
    return 1 if lost else 0


def row(name: str, half: Half, root: int | None) -> tuple[str, ...]:
    def share(size: int) -> str:
        return f"{size / half.bytes_in:.1%}"

    said = "" if root is None else "dropped" if half.lost else "kept"
    return name, f"{half.bytes_in:,}", share(half.kept), share(half.evidence), share(half.new), said


if __name__ == "__main__":
    sys.exit(main())
