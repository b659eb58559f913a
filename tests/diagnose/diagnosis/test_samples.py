"""The sample jobs get the answers that their labels say: what failed, at which line, where, and what to do."""

from __future__ import annotations

import csv
import os

import pytest

from diagnose.job import Job
from diagnose.reading.sources import find
from tests.conftest import ROOT
from tests.support.logs import shipped_matcher

FOLDER = ROOT / "fixtures"
with (FOLDER / "labels.tsv").open(newline="") as labels:
    ROWS = list(csv.DictReader(labels, delimiter="\t"))


@pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])
def test_a_sample_job_is_diagnosed_as_it_is_labelled(row: dict[str, str]) -> None:
    place = FOLDER / row["file"]
    job = Job("job", find([str(place)]).sources, shipped_matcher())
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    report = job.report()
    diagnosis = report.diagnosis
    root = "-"
    if diagnosis.root_cause is not None:
        name = os.path.relpath(diagnosis.root_cause.source, place)
        root = str(diagnosis.root_cause.line) if name == "." else f"{name}:{diagnosis.root_cause.line}"
    assert (diagnosis.category, diagnosis.reason, root) == (row["category"], row["reason"], row["root_cause_line"])
    assert report.action.kind == row["action"]
    named = {*diagnosis.suspects.nodes, *(f"rank {rank}" for rank in diagnosis.suspects.ranks)}
    assert {one for one in row["where"].split("; ") if one != "-"} <= named
    assert (diagnosis.confidence > 0.5) is (row["reason"] != "unknown")
