"""Around the checkpointer of torchtitan: its own checkpoints, verified, judged, kept, and written when it is time.

    trainer = config.build()                                   # as torchtitan does
    diagnosed = Diagnosed(trainer.checkpointer, run)           # on all ranks, before trainer.train()
    trainer.train()

``load`` takes the newest checkpoint that can be used, unless a step is asked for. ``save`` also saves when it is time. What is
written behind the training (``async_mode``) is sealed when it is complete: at the next step after that. Set ``keep_latest_k``
to 0, because torchtitan deletes the last good one. For the loss and its alarms call ``diagnosed.beside.around.keeper.alarm``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Run
from diagnose.errors import DiagnoseError


class Diagnosed:
    def __init__(
        self, checkpointer: Any, run: Run | None = None, *, keep: int | None = 3, every_s: float | None = None
    ) -> None:
        if checkpointer.keep_latest_k > 0 and keep is not None:
            remedy = "set checkpoint.keep_latest_k to 0, or keep=None here"
            raise DiagnoseError("torchtitan would delete checkpoints as well, also the last good one", remedy=remedy)
        self.checkpointer = checkpointer
        self.beside = Beside(checkpointer.folder, run, keep=keep, every_s=every_s)
        self.beside.listen()
        self._waiting: tuple[int, Path] | None = None
        """what is written behind the training"""
        self._save, self._load, self._close = checkpointer.save, checkpointer.load, checkpointer.close
        self._should_save = checkpointer._should_save
        self._due = False
        checkpointer.save, checkpointer.load, checkpointer.close = self.save, self.load, self.close
        checkpointer._should_save = self.should_save

    @property
    def ending(self) -> bool:
        """SIGTERM came to some rank."""
        return self.beside.ending

    def load(self, step: int = -1) -> bool:
        """In place of ``checkpointer.load``."""
        if step == -1:
            found = self.beside.begin()
            if found.step is None:
                return not found.passed_over and bool(self._load(step))
            step = found.step
        return bool(self._load(step))

    def should_save(self, step: int, last_step: bool = False) -> bool:
        return self._due or bool(self._should_save(step, last_step))

    def save(self, step: int, last_step: bool = False) -> bool:
        """In place of ``checkpointer.save``, which torchtitan calls after each step."""
        self._seal(wait=False)
        self._due = self.beside.due(step, writing=self._waiting is not None)
        if self.should_save(step, last_step):
            self._seal(wait=True)
        began = time.monotonic()
        saved = bool(self._save(step, last_step))
        if saved:
            self._waiting = step, Path(self.checkpointer._create_checkpoint_id(step))
            self.beside.stood(time.monotonic() - began)
            self._seal(wait=last_step)
        self._due = False
        return saved

    def close(self) -> None:
        self._seal(wait=True)
        self._close()
        self.beside.close()

    def _seal(self, *, wait: bool) -> None:
        """What was written behind the training, if it is complete."""
        if self._waiting is None:
            return
        future = self.checkpointer.save_future
        if future is not None and not wait and not future.done():
            return
        self.checkpointer.maybe_wait_for_saving()
        (step, path), self._waiting = self._waiting, None
        self.beside.complete(step, path)
