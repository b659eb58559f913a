"""What all hooks have in common, in one process."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest

from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Word


class Told:
    """In place of the client."""

    def __init__(self) -> None:
        self.word: Word | None = None
        self.steps: list[tuple[int, float | None]] = []

    def progress(self, step: int, *, loss: float | None = None) -> None:
        self.steps.append((step, loss))
        self.word = Word(save="its node is going bad") if step == 2 else Word()


def test_the_service_is_heard_also_where_nobody_knows_the_loss(tmp_path: Path) -> None:
    """Its word comes with the answer to the progress that is reported."""
    told = Told()
    beside = Beside(tmp_path, told, every_s=math.inf)  # type: ignore[arg-type]
    assert [beside.due(step) for step in (1, 2)] == [False, True]
    assert told.steps == [(1, None), (2, None)]
    assert beside.asking.now == "its node is going bad"


def test_what_was_saved_before_all_ranks_heard_of_the_end_is_not_the_last(tmp_path: Path) -> None:
    beside = Beside(tmp_path, every_s=math.inf)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    try:
        beside.listen()
        signal.raise_signal(signal.SIGTERM)
        beside.stood(0.1)  # the other program saves at a step of its own
        assert (beside.due(5), beside.ending) == (True, True)
        assert not beside.due(6), "once"
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGUSR1, before[1])


@pytest.mark.parametrize("loss", [math.nan, 1.0])
def test_a_loss_that_is_no_number_is_an_alarm(tmp_path: Path, loss: float) -> None:
    beside = Beside(tmp_path, every_s=math.inf)
    beside.due(3, loss)
    assert beside.around is not None
    assert bool(beside.around.keeper.alarms) is math.isnan(loss)
