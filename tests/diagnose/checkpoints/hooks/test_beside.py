"""What all hooks have in common, in one process."""

from __future__ import annotations

import math
import signal
import threading
from pathlib import Path

import pytest

from diagnose.checkpoints import manifest
from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Word
from diagnose.errors import DiagnoseError


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


def written(folder: Path, step: int) -> Path:
    path = folder / f"iter_{step:07d}"
    path.mkdir()
    (path / "a.distcp").write_bytes(b"x" * 100)
    return path


def test_a_checkpoint_that_cannot_be_sealed_is_told_at_the_end_and_not_amid_what_other_ranks_wait_for(tmp_path: Path) -> None:
    beside = Beside(tmp_path, every_s=math.inf)
    beside.complete(1, tmp_path / "iter_0000001")  # somebody moved it away
    beside._sealing[0].exception(10)
    path = written(tmp_path, 2)
    beside.complete(2, path)
    with pytest.raises(DiagnoseError, match="could not be sealed"):
        beside.close()
    assert manifest.read(path) is not None, "the next is sealed nevertheless"


def test_nobody_waits_until_the_one_before_is_sealed(tmp_path: Path) -> None:
    beside = Beside(tmp_path, every_s=math.inf)
    paths = [written(tmp_path, step) for step in (1, 2, 3)]
    goes_on = threading.Event()
    beside._sealer.submit(goes_on.wait, 20)  # a long one
    for step, path in enumerate(paths, 1):
        beside.complete(step, path)
    assert not (paths[0] / manifest.NAME).exists()
    goes_on.set()
    beside.close()
    assert all(manifest.read(path) is not None for path in paths)
