"""What goes on beside a training whose checkpoints another program writes. On all ranks; rank 0 seals, judges and tells.

beside = Beside("/out", run)
start = beside.begin()                 # the same on all ranks
...
if beside.due(step, loss):             # after each step: it is time, or somebody asked
    with beside.saving(step) as facts:
        ...                            # let the other program write, until all of it is there
        facts["path"] = path
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from diagnose.checkpoints.around import Around, Begin
from diagnose.checkpoints.asking import Asking
from diagnose.checkpoints.exact import Exactness, Losses
from diagnose.checkpoints.hashes import give_way
from diagnose.client import Run
from diagnose.errors import DiagnoseError

log = logging.getLogger("diagnose.checkpoints")


class Beside:
    def __init__(
        self, folder: str | Path, run: Run | None = None, *, keep: int | None = None, every_s: float | None = None
    ) -> None:
        """``keep``: let diagnose delete old ones, the other program none. ``every_s``: a fixed interval; math.inf for none."""
        self._dist = _distributed()
        self.rank: int = self._dist.get_rank() if self._dist is not None else 0
        self._group: Any = self._dist.new_group(backend="gloo") if self._dist is not None else None
        self._run = run if self.rank == 0 else None
        self.around = Around(folder, self._run, keep=keep) if self.rank == 0 else None
        """on rank 0"""
        self.asking = Asking(every_s=every_s)
        self._losses = Losses(Path(folder)) if self.rank == 0 else None
        self._next_look, self._look_s = 0, 0.0
        self._sealer = ThreadPoolExecutor(1, "diagnose-sealing")
        self._sealing: list[Future[None]] = []
        self.ending = False
        """SIGTERM came to some rank: save, and end. It changes in ``due``, on all ranks at the same step"""

    @property
    def exactness(self) -> Exactness | None:
        """On rank 0: whether the training is the one of before the resume; known some losses later."""
        return self._losses.exactness if self._losses is not None else None

    def begin(self, *, proposed: bool = False) -> Begin:
        """The newest checkpoint that can be used. The same on all ranks."""
        self.settle()
        found: list[Any] = [None]
        if self.around is not None:
            found = [self.around.resume(proposed=proposed)]
            self.resumed(found[0].step or 0)
        if self._dist is not None:
            self._dist.broadcast_object_list(found, src=0, group=self._group)
        begin: Begin = found[0]
        return begin

    def resumed(self, step: int) -> None:
        """The training begins after this step. ``begin`` says it by itself."""
        if self._losses is not None:
            self._losses.resumed(step)

    def listen(self) -> None:
        """Save on SIGTERM and SIGUSR1. Signals can only be heard in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self.asking.listen(signal.SIGTERM, signal.SIGUSR1)

    def due(self, step: int, loss: float | None = None, *, writing: bool = False) -> bool:
        """A step is done: whether to save now, the same on all ranks. ``writing``: the last checkpoint is not complete."""
        self.asking.stepped(writing)
        if self.around is not None:
            self._note(step, loss)
        if step < self._next_look:
            return False
        began = time.monotonic()
        if self._run is not None and self.around is not None:
            self.asking.hear(self._run.word)
            self.around.keeper.hear(self._run.word)
        due = self.asking.now is not None or (self.rank == 0 and self.asking.due(None))
        told = [due, self.asking.ending, self.asking.steps_between_looks(self._look_s) if self.rank == 0 else 0]
        if self._dist is not None:
            told = self._agreed(told)
            self._next_look = step + int(told[2])
        self._look_s = time.monotonic() - began
        ends = bool(told[1]) and not self.ending
        self.ending = self.ending or ends
        # A save after the signal and before the ranks heard of it has fulfilled the wish, and is older.
        return bool(told[0]) or ends

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._dist is not None:
            self._dist.barrier(group=self._group)

    def _agreed(self, told: list[Any]) -> list[Any]:
        torch: Any = importlib.import_module("torch")
        numbers = torch.tensor([int(one) for one in told])
        self._dist.all_reduce(numbers, self._dist.ReduceOp.MAX, group=self._group)
        agreed: list[Any] = numbers.tolist()
        return agreed

    def _note(self, step: int, loss: float | None) -> None:
        assert self.around is not None
        assert self._losses is not None
        if self._run is not None:  # also without a loss: the service's word comes with the answer
            self._run.progress(step, loss=loss)
        if loss is None:
            return
        if not math.isfinite(loss):
            self.around.keeper.alarm(step, f"the loss is {loss}")
        self._losses.note(step, loss)

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[dict[str, Any]]:
        """While the other program writes. Put the ``path`` of what it wrote into what this gives, and what else is known."""
        began = time.monotonic()
        facts: dict[str, Any] = {}
        yield facts
        self.stood(time.monotonic() - began)
        self.complete(step, facts.pop("path"), **facts)

    def stood(self, seconds: float) -> None:
        """A save held the training up for so long."""
        self.asking.saved(seconds)

    def complete(self, step: int, path: str | Path, **facts: float | str | bool | None) -> None:
        """The other program has finished a checkpoint: all its files are there. It is sealed, judged and told on rank 0.

        That reads all of it, so a thread does it, one after the other. Here nothing waits or is raised, as the other ranks
        would wait for rank 0. What went wrong is logged, and raised by ``settle``.
        """
        around, cost = self.around, self.asking.pace.cost_s
        if around is None:
            return

        def seal() -> None:
            give_way()
            try:
                around.saved(path, step, cost_s=cost, **facts)
            except Exception as error:
                log.error("the checkpoint of step %d could not be sealed: %s", step, error)
                raise

        self._sealing = [one for one in self._sealing if not one.done() or one.exception() is not None]
        self._sealing.append(self._sealer.submit(seal))

    def settle(self) -> None:
        """Wait until all are sealed. Raises the first thing that went wrong since the last time."""
        sealing, self._sealing = self._sealing, []
        failed = [error for one in sealing if (error := one.exception()) is not None]
        if failed and isinstance(failed[0], OSError):
            remedy = "let no other program delete or move checkpoints; is the disk well?"
            raise DiagnoseError(f"a checkpoint could not be sealed: {failed[0]}", remedy=remedy) from failed[0]
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Seal and tell the rest. Signals are no longer heard."""
        try:
            self.settle()
        finally:
            self.asking.close()
            if self._run is not None:
                self._run.close()


def _distributed() -> Any:
    """torch.distributed, if there are several ranks."""
    if importlib.util.find_spec("torch") is None:
        return None
    dist: Any = importlib.import_module("torch.distributed")
    return dist if dist.is_available() and dist.is_initialized() else None
