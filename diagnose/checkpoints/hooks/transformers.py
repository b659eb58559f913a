"""For the Trainer of Hugging Face: its own checkpoints, verified, judged and written when it is time. Needs transformers.

    diagnosed = Diagnosed(output_dir, diagnose.client.Run())
    trainer = Trainer(..., callbacks=[diagnosed])
    trainer.train(resume_from_checkpoint=diagnosed.begin())

The Trainer goes on to write its checkpoints as it is told to (``save_steps``). Besides, it saves when it is time by what a save
costs, on SIGTERM and SIGUSR1, and when the service asks. Leave ``save_total_limit`` unset: it would delete the last good one.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from diagnose.checkpoints.around import Around, Begin
from diagnose.checkpoints.asking import Asking
from diagnose.checkpoints.exact import Exactness, Losses
from diagnose.client import Run


class Diagnosed(TrainerCallback):  # type: ignore[misc,unused-ignore]  # transformers may be missing where types are checked
    def __init__(
        self, output_dir: str | Path, run: Run | None = None, *, keep: int | None = None, every_s: float | None = None
    ) -> None:
        """``every_s``: a fixed interval between saves, besides ``save_steps``; math.inf for none."""
        self.around = Around(output_dir, run, keep=keep)
        self.asking = Asking(every_s=every_s)
        self.losses = Losses(Path(output_dir))
        self.found: Begin | None = None
        self._run = run
        self._asked_at: float | None = None

    @property
    def exactness(self) -> Exactness | None:
        """Whether the training is the one of before the resume; known some logged losses later."""
        return self.losses.exactness

    def begin(self, *, proposed: bool = False) -> str | None:
        """The checkpoint to resume from, for ``Trainer.train``."""
        self.found = self.around.resume(proposed=proposed)
        self.losses.resumed(self.found.step or 0)
        return str(self.found.path) if self.found.path is not None else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self.asking.listen(signal.SIGTERM, signal.SIGUSR1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.asking.stepped(writing=False)
        word = self._run.word if self._run is not None else None
        self.asking.hear(word)
        self.around.keeper.hear(word)
        if self.asking.due(None):
            control.should_save = True
        if self.asking.ending:
            control.should_training_stop = True
        self._asked_at = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs or not state.is_world_process_zero:
            return
        loss = float(logs["loss"])
        if self._run is not None:
            self._run.progress(state.global_step, loss=loss)
        if not math.isfinite(loss):
            self.around.keeper.alarm(state.global_step, f"the loss is {loss}")
        self.losses.note(state.global_step, loss)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            evaluation = next((one["eval_loss"] for one in reversed(state.log_history) if "eval_loss" in one), None)
            self.around.saved(path, state.global_step, evaluation=evaluation)
        self.asking.saved(time.monotonic() - self._asked_at if self._asked_at is not None else 0.0)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.asking.close()
        if self._run is not None:
            self._run.close()
