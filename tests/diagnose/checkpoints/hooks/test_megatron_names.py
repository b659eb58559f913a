"""What is taken the place of in Megatron-LM, without Megatron: by functions with the names of its own."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from diagnose.checkpoints import manifest
from diagnose.checkpoints.hooks.megatron import Diagnosed

WRITER = "a_writer_of_megatron"


class Request:
    def __init__(self) -> None:
        self.finish: list[Callable[[], None]] = []

    def add_finalize_fn(self, one: Callable[[], None]) -> None:
        self.finish.append(one)


class Training(SimpleNamespace):
    """Each checkpoint takes two requests, as where its optimizer is distributed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.args = SimpleNamespace(save=str(folder), load=str(folder), ckpt_step=None, log_interval=10)
        self.queue: list[Request] = []
        self.refused = 0
        self.read: list[int] = []
        self.get_args = lambda: self.args
        self.load_checkpoint = lambda *_, **__: (0, 0)
        self.save_checkpoint = self._save
        self.save_checkpoint_and_time = None
        self.checkpoint_and_decide_exit = lambda *_, **__: False
        self.train_step = lambda step: ({"lm loss": Loss(step, self.read)},)

    def schedule(self, request: Request) -> None:
        if len(self.queue) + 1 == self.refused:
            raise RuntimeError("the writer has ended")
        self.queue.append(request)

    def _save(self, step: int) -> None:
        path = Path(self.args.save) / f"iter_{step:07d}"
        path.mkdir()
        (path / "a.distcp").write_bytes(b"x" * 100)
        for _ in range(2):
            sys.modules[WRITER].schedule_async_save(Request())
        if self.refused > 2:
            raise RuntimeError("the writer has ended")


class Loss:
    """On a GPU."""

    def __init__(self, step: int, read: list[int]) -> None:
        self.step, self.read = step, read

    def __float__(self) -> float:
        self.read.append(self.step)
        return 1.0


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    made, writer = Training(tmp_path), ModuleType(WRITER)
    writer.schedule_async_save = made.schedule  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, WRITER, writer)
    made.save_checkpoint = lambda *words: made._save(*words)
    made.save_checkpoint.__module__ = WRITER
    return made


def test_where_a_name_is_missing_nothing_is_replaced(training: Training) -> None:
    del training.checkpoint_and_decide_exit
    own = training.load_checkpoint, training.train_step
    with pytest.raises(AttributeError):
        Diagnosed(training)
    assert (training.load_checkpoint, training.train_step) == own


def finish(requests: list[Request]) -> None:
    for request in requests:
        for one in request.finish:
            one()


@pytest.mark.parametrize("refused", [2, 3], ids=["the second request", "behind both"])
def test_a_checkpoint_whose_saving_failed_is_none(training: Training, tmp_path: Path, refused: int) -> None:
    diagnosed = Diagnosed(training, every_s=math.inf)
    training.refused = refused
    with pytest.raises(RuntimeError, match="has ended"):
        training.save_checkpoint(4)
    finish(training.queue)
    training.refused = 0
    training.queue.clear()
    training.save_checkpoint(8)
    finish(training.queue)
    diagnosed.close()
    assert [path.parent.name for path in tmp_path.glob(f"*/{manifest.NAME}")] == ["iter_0000008"]


def test_the_loss_is_read_where_megatron_waits_for_it_anyway(training: Training) -> None:
    diagnosed = Diagnosed(training, every_s=math.inf)
    for step in range(1, 31):
        training.train_step(step)
        training.checkpoint_and_decide_exit(None, None, None, step, 0, {}, None)
    diagnosed.close()
    assert training.read == [10, 20, 30]
