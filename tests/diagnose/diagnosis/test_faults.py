"""Faults that happen to real ranks over gloo: the first to go is suspected, and nobody else. ``benchmarks.faults`` has more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults.__main__ import FAULTS, results
from benchmarks.faults.plan import Plan
from tests.conftest import ROOT

PLANS = [Plan(fault, 3, number % 3) for number, fault in enumerate(FAULTS)] + [Plan("kill", 2, 0), Plan("hang", 2, 1)]


@pytest.mark.server
def test_the_first_rank_to_go_is_suspected_and_nobody_else(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [sys.executable, "-m", "benchmarks.faults.alone", str(tmp_path / "alone"), *map(str, PLANS)]
    subprocess.run(words, check=True, timeout=120, cwd=ROOT)
    found = {str(one.plan): (one.ranks, one.nodes) for one in results(PLANS, tmp_path)}
    assert found == {str(plan): ((plan.victim,), ()) for plan in PLANS}
