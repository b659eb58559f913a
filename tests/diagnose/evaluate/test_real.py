"""What the measurement with real work simulates, and the slots in which its pieces run. The measurement itself takes long."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.evaluation import slots
from benchmarks.evaluation.real import _WORK, WAYS, Costs, Row, prepared, table
from diagnose.evaluate.suite import Node

_NAMES = [f"made{number}" for number in range(len(_WORK))]
COSTS = Costs(
    7.0, 0.1, {name: 0.5 * 1.5**n for n, name in enumerate(_NAMES)}, {name: 4.0 + n % 3 for n, name in enumerate(_NAMES)}
)


def test_there_are_as_many_data_sets_as_asked_for() -> None:
    assert len(_WORK) >= 12


@pytest.mark.parametrize("nodes", [1, 4])
def test_the_plan_is_expected_sooner_than_the_plain_ones(tmp_path: Path, nodes: int) -> None:
    machines = [Node(f"node{number}", 2, 2) for number in range(nodes)]
    takes = {way: prepared(tmp_path, way, machines, COSTS, 0.1)[3] for way in WAYS}
    assert takes["plan"] < takes["longest first"] <= takes["random order"]


def test_a_plain_trial_pays_for_its_metric(tmp_path: Path) -> None:
    """On one place, nothing runs at the same time: the simulated time is the sum of what was measured."""
    takes = prepared(tmp_path, "longest first", [Node("one", 1, 1)], COSTS, 0.5)[3]
    metrics = sum(COSTS.score_s.values()) - 4.0 * len(_WORK)
    assert takes == pytest.approx((len(_WORK) * 7.1 + sum(COSTS.trial_s.values()) + metrics) / 0.5, rel=0.01)


@pytest.mark.slow
def test_a_slot_is_held_by_one_piece_at_a_time(tmp_path: Path) -> None:
    slots.make(tmp_path, None, {"place": 2}, 1)
    command = [sys.executable, "-S", slots.__file__, str(tmp_path), "place", "sleep", "0.5"]
    began = time.monotonic()
    pieces = [subprocess.Popen(command) for _ in range(4)]
    assert [one.wait(60) for one in pieces] == [0, 0, 0, 0]
    assert time.monotonic() - began >= 1.0
    rows = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [row["command"] for row in rows] == [["sleep", "0.5"]] * 4
    assert all(row["cpu_s"] < 0.5 <= row["wall_s"] for row in rows)


def test_a_gain_stands_beside_the_plan() -> None:
    rows = [Row(1, way, took, 10, 12) for way, took in zip(WAYS, (30, 20, 10), strict=True)]
    assert table(rows).splitlines()[-1] == "| 1 | plan | 10 s | 10 s | 1.00 | 3.00, 2.00 |"
