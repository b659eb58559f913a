"""Real logs, where a corpus stands beside the checkout: nothing that matters is dropped, and all engines agree."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from diagnose.accuracy import Results, evaluate
from diagnose.compression.kept_log import Compression
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from tests.conftest import ROOT
from tests.diagnose.matching.test_engines import FAST, scan_all

CORPUS = ROOT.parent / "shared" / "corpus"


def rows(folder: str) -> list[dict[str, str]]:
    with (CORPUS / folder / "labels.tsv").open(newline="") as labels:
        return [row | {"path": str(CORPUS / folder / row["file"])} for row in csv.DictReader(labels, delimiter="\t")]


def content(row: dict[str, str]) -> bytes:
    data = Path(row["path"]).read_bytes()
    return gzip.decompress(data) if row["path"].endswith(".gz") else data


@pytest.fixture(scope="module")
def matchers() -> dict[str, Matcher]:
    return {engine: Matcher(load(), engine, reserved=EARLY) for engine in ("plain", *FAST)}  # type: ignore[arg-type]


if CORPUS.is_dir():
    ROWS = [*rows("cases"), *rows("whole")]

    DROPPED = pytest.mark.xfail(reason="the first of a run of overflows is regular by itself, and a filter drops it")
    CASES = [pytest.param(row, id=row["file"], marks=DROPPED if row["file"] == "fwscript-027.log" else ()) for row in ROWS]

    @pytest.mark.parametrize("row", CASES)
    def test_the_root_line_is_kept_and_all_engines_agree(row: dict[str, str], matchers: dict[str, Matcher]) -> None:
        data = content(row)
        compression = Compression(matchers[FAST[-1]])
        compression.feed(0, data)
        compression.close(0)
        if row["root_cause_line"] != "-":
            assert int(row["root_cause_line"]) in {line.line for line in compression.kept}
        expected = scan_all(matchers["plain"], [data])
        for engine in FAST:
            assert (
                scan_all(matchers[engine], [data[start : start + 50_021] for start in range(0, len(data), 50_021)]) == expected
            )

    def test_whole_logs_are_compressed(matchers: dict[str, Matcher]) -> None:
        """A floor under what was measured: 50 logs, most of software that no filter was written for."""
        total_in = total_kept = 0
        for row in rows("whole"):
            compression = Compression(matchers[FAST[-1]])
            compression.feed(0, content(row))
            compression.close(0)
            total_in += compression.counts.bytes_in
            total_kept += compression.counts.bytes_kept
        assert total_kept <= 0.40 * total_in

    def test_the_diagnosis_is_as_good_as_it_must_be(matchers: dict[str, Matcher]) -> None:
        cases = Results("cases", list(evaluate(CORPUS / "cases", matchers[FAST[-1]])))
        score = cases.whole
        assert score.category >= 0.93 * score.cases
        assert score.reason >= 0.91 * score.cases
        assert score.near >= 0.90 * score.with_line
        assert score.exact >= 0.88 * score.with_line
        assert score.action >= 0.85 * score.cases
        assert score.suspects_found >= 0.84 * score.with_suspects
        assert score.alarms <= 1

    def test_whole_runs_come_out_right(matchers: dict[str, Matcher]) -> None:
        score = Results("whole", list(evaluate(CORPUS / "whole", matchers[FAST[-1]]))).whole
        assert score.reason >= score.cases - 3
        assert score.exact >= score.with_line - 2
        assert score.alarms <= 3
