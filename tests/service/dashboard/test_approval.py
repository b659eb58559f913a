"""What a yes means, in words: by whom, what it touches, and what silence means."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from service.acting.executors.configuration import Configured, Which, of_command
from service.acting.executors.executor import Order
from service.dashboard.approval import Hands, silence, touched, tried

ISOLATE = Order("k", "isolate_and_restart", job="train-7b", nodes=("gpu-07",), restart_from={"step": 1200})


@dataclass
class Slurm:
    """Where a real one would reach a cluster."""

    kinds: frozenset[str] = field(default_factory=lambda: frozenset({"isolate_and_restart"}))


@pytest.mark.parametrize(
    ("executors", "runner", "able", "words"),
    [
        ((), False, False, "no executor, and no runner"),
        ((), True, True, "a runner"),
        ((Configured("ops", "slurm", Slurm(), Slurm().kinds),), False, True, "the executor ops (slurm)"),  # type: ignore[arg-type]
        ((Configured("ops", "slurm", Slurm(), Slurm().kinds, dry_run=True),), False, False, "only says what it would do"),  # type: ignore[arg-type]
        (
            (Configured("ops", "slurm", Slurm(), Slurm().kinds, Which(job="other*")),),
            False,
            False,
            "none of the executors (ops)",
        ),  # type: ignore[arg-type]
    ],
    ids=["nobody", "a runner", "an executor", "a dry run", "one for other jobs"],
)
def test_who_would_carry_it_out(executors: tuple[Configured, ...], runner: bool, able: bool, words: str) -> None:
    found, said = Hands(executors, runner).said(ISOLATE)
    assert found is able
    assert words in said


def test_what_it_touches_names_other_jobs_and_what_is_left() -> None:
    said = " ".join(touched(ISOLATE, [{"name": "eval-3"}], nodes=40, isolated=2))
    assert "37 of 40 known nodes are left" in said
    assert "eval-3" in said
    assert "train-7b is started again from step 1,200" in said
    alone = " ".join(touched(Order("k", "restart", job="train-7b"), [], nodes=40, isolated=2))
    assert "left in service" not in alone


def test_silence_means_that_nothing_is_done() -> None:
    assert "expires in 1 h" in str(silence("proposed", 3600.0, 0.0))
    assert silence("succeeded", 3600.0, 0.0) is None


def test_a_dry_run_says_what_the_program_would_do() -> None:
    said = asyncio.run(tried([of_command(["/bin/true"], repeatable=False)], ISOLATE))
    assert said.startswith("command: ")
    assert "/bin/true" in said
