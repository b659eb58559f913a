"""For Lightning: its own checkpoints, verified, judged, kept, and written when it is time. Needs lightning.

    diagnosed = Diagnosed("/out", diagnose.client.Run())
    trainer = Trainer(..., callbacks=[diagnosed])
    trainer.fit(model, ckpt_path=diagnosed.begin())

It takes the place of ``ModelCheckpoint``: Lightning writes (``trainer.save_checkpoint``, with the strategy's own writer), each
checkpoint into a folder ``step_000001200``. ``every_steps`` saves at fixed steps besides. A checkpoint that is written in the
background by ``AsyncCheckpointIO`` cannot be sealed, because nobody says when it is complete; it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO

from diagnose.checkpoints.around import Around, Begin
from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Run
from diagnose.errors import DiagnoseError

_FILE = "model.ckpt"


class Diagnosed(Checkpoint):  # type: ignore[misc,unused-ignore]  # lightning may be missing where types are checked
    def __init__(
        self,
        folder: str | Path,
        run: Run | None = None,
        *,
        keep: int | None = 3,
        every_s: float | None = None,
        every_steps: int | None = None,
        loss: str = "loss",
    ) -> None:
        """``every_s``: a fixed interval; math.inf for none. ``loss``: its name in what ``training_step`` gives."""
        super().__init__()
        self.folder = Path(folder)
        self.found: Begin | None = None
        self.beside: Beside | None = None
        self._how = {"run": run, "keep": keep, "every_s": every_s}
        self._every_steps, self._loss = every_steps, loss

    def begin(self, *, proposed: bool = False) -> str | None:
        """The checkpoint to resume from, for ``Trainer.fit``. Each rank looks, as they know each other only later."""
        self.found = Around(self.folder, self._how["run"]).resume(proposed=proposed)  # type: ignore[arg-type]
        path = self.found.path
        return str(path / _FILE if path.is_dir() else path) if path is not None else None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
            remedy = "leave AsyncCheckpointIO out, or use diagnose.checkpoints.Checkpoints, which writes behind the training"
            raise DiagnoseError("AsyncCheckpointIO does not say when a checkpoint is complete", remedy=remedy)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.beside = Beside(self.folder, **self._how)  # type: ignore[arg-type]  # the ranks are there only now
        self.beside.resumed(trainer.global_step)
        self.beside.listen()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.beside is None or trainer.fit_loop._should_accumulate():
            return
        step = trainer.global_step
        due = self.beside.due(step, _loss_of(outputs, self._loss))
        if due or (self._every_steps is not None and step % self._every_steps == 0):
            self._save(trainer, self.beside, step)
        trainer.should_stop = trainer.should_stop or self.beside.ending

    def _save(self, trainer: Any, beside: Beside, step: int) -> None:
        path = self.folder / f"step_{step:09}"
        with beside.saving(step) as facts:
            trainer.save_checkpoint(path / _FILE)  # on all ranks; it ends with a barrier
            facts["path"] = path

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.beside is not None:  # also SIGTERM ends so; there is no teardown then
            self.beside.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.beside is not None:
            self.beside.close()


def _loss_of(outputs: Any, name: str) -> float | None:
    found = outputs.get(name) if isinstance(outputs, dict) else outputs
    return float(found) if found is not None else None
