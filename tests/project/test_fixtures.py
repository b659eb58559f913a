"""The sample jobs: as the generator writes them, complete by the taxonomy, and nothing that matters dropped from them."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.reading.sources import find
from tests.conftest import ROOT

with (ROOT / "fixtures" / "labels.tsv").open(newline="") as labels:
    ROWS = list(csv.DictReader(labels, delimiter="\t"))


def test_the_committed_files_are_what_the_generator_writes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fixtures.generate", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_reason_has_a_job() -> None:
    assert {row["reason"] for row in ROWS} == set(shipped_taxonomy().category_of)
    assert all(shipped_taxonomy().category_of[row["reason"]] == row["category"] for row in ROWS)


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load(), reserved=EARLY)


@pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])
def test_root_lines_are_kept_and_little_else(row: dict[str, str], matcher: Matcher) -> None:
    folder = str(ROOT / "fixtures" / row["file"])
    job = Job("job", find([folder]).sources, matcher)
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    kept = {(os.path.relpath(job.sources[line.source].name, folder), line.line) for line in job.compression.kept}
    if row["root_cause_line"] != "-":
        file, _, line = row["root_cause_line"].rpartition(":")
        assert (file or ".", int(line)) in kept
    counts = job.compression.counts
    assert counts.lines_in == counts.lines_kept + counts.blank + sum(counts.dropped.values())
    if counts.bytes_in > 30_000:
        assert counts.bytes_kept < 0.15 * counts.bytes_in
    if row["reason"] == "healthy" and "requeued" not in row["note"]:
        assert job.report().outcome == "healthy"
