"""Which run a log belongs to, by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.reading.sources import Source
from diagnose.study.logs import of_runs
from diagnose.study.runs import Run

UID = "5b1c8f0e-8a0d-4a57-9a0e-3f6a1c2d4e5f"
RUNS = [
    Run("8812", "failed", raw="8812"),
    Run("sft-17", "failed", raw="u1", names=("sft-17", "sft-17-0-x7k2z", UID), space="llm"),
    Run("sft", "failed", raw="u2", names=("sft",), space="llm"),
    Run("eval.big", "failed", raw="u3", names=("eval.big",), space="llm"),
    Run("same", "failed", raw="u4", names=("same",), space="llm"),
    Run("same", "failed", raw="u5", names=("same",), space="vision"),
]


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("slurm-8812.out", 0),
        (f"/var/log/pods/llm_sft-17-0-x7k2z_{UID}/sft/0.log", 1),
        (f"pods/{UID}/train/0.log", 1),
        ("containers/sft-17-0-x7k2z_llm_train-0123abcd.log", 1),
        ("sft-17.log.gz", 1),
        ("sft-17-bcdfg.log", 1),
        ("sft-17-worker-3.log", 1),
        ("sft.log", 2),
        ("sft/rank0.log", 2),
        ("sft-18.log", None),
        ("sft-other.log", None),
        ("eval.big.log", 3),
        ("same.log", None),
        ("vision/same-bcdfg.log", 5),
        ("llm_same-bcdfg_0e6a/train/0.log", 4),
    ],
)
def test_the_path_of_a_log_names_its_run(path: str, number: int | None) -> None:
    source = Source(path, Path(path))
    assert of_runs(RUNS, [source]) == ({} if number is None else {number: [source]})
