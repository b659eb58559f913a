"""The benchmark of what one process carries: its ratios, and that its parts measure something."""

from __future__ import annotations

import argparse
import asyncio

import pytest

from benchmarks.carried.__main__ import rows
from benchmarks.carried.parts import PARTS, Figure
from benchmarks.service import Bench


def test_a_ratio_above_one_is_better_whichever_way_a_figure_counts() -> None:
    now = {"speed": Figure(6.0, "MB/s", more_is_better=True), "memory": Figure(50.0, "kB")}
    before = {"speed": Figure(2.0, "MB/s", more_is_better=True), "memory": Figure(25.0, "kB")}
    told = rows([{"now": now, "before": before}])
    assert [row[0] for row in told] == ["speed [MB/s]", "memory [kB]"]
    assert [row[-1] for row in told] == ["3.00 (3.00-3.00)", "0.50 (0.50-0.50)"]


def test_ratios_are_taken_within_a_repetition() -> None:
    def one(now: float, before: float) -> dict[str, dict[str, Figure]]:
        return {"now": {"speed": Figure(now, "", True)}, "before": {"speed": Figure(before, "", True)}}

    [row] = rows([one(2, 1), one(20, 10), one(200, 100)])  # the machine became faster meanwhile
    assert row[-1] == "2.00 (2.00-2.00)"


@pytest.mark.server
@pytest.mark.parametrize("part", ["failing", "pushes", "opening", "sources"])
def test_a_part_measures_a_real_server(part: str) -> None:
    options = argparse.Namespace(jobs=25, piece=20_000, pushes=50, sources=40)
    bench = Bench("sqlite")
    try:
        with bench.server() as server:
            found = asyncio.run(PARTS[part](server, options))
    finally:
        bench.close()
    assert found
    assert all(0 <= figure.value < float("inf") for figure in found.values())
