"""Around the training loop of Megatron-LM: its own checkpoints, verified, judged, kept, and written when it is time.

    from megatron.training import pretrain, training

    diagnosed = Diagnosed(training, diagnose.client.Run())     # on all ranks, before pretrain
    try:
        pretrain(...)                                          # as before, with --save and --load of the same folder
    finally:
        diagnosed.close()

Megatron's loop calls functions by name, in its module ``training``. Four of them are taken the place of there:

    load_checkpoint                 takes the newest that can be used, also where the tracker names a newer one
    train_step                      its loss, where rank 0 has one (without pipeline stages), once per --log-interval
    checkpoint_and_decide_exit      saves when it is time, or when somebody asked; SIGTERM ends the loop
    save_checkpoint                 what it wrote is sealed; with --async-save when all ranks have finished, not before

Leave --save-retain-interval out, because it deletes the last good one. Checkpoints that are not persistent are left alone.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.checkpoints.around import Begin
from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Run
from diagnose.errors import DiagnoseError

_NAMED = "iter_{:07d}"


@dataclass(slots=True)
class _Behind:
    """A checkpoint that Megatron writes behind the training."""

    step: int
    path: Path
    left: int = 0
    """requests that are not finished: Megatron may make several of one checkpoint, and writes its last files after the last"""


class Diagnosed:
    def __init__(
        self,
        training: Any,
        run: Run | None = None,
        *,
        keep: int | None = 3,
        every_s: float | None = None,
        loss: str = "lm loss",
    ) -> None:
        """``training``: the module ``megatron.training.training``. ``every_s``: a fixed interval; math.inf for none.
        ``loss``: its name in what ``train_step`` gives.
        """
        self.training = training
        self.found: Begin | None = None
        """where it began, and why"""
        self._run, self._keep, self._every_s, self._loss = run, keep, every_s, loss
        self._beside: Beside | None = None
        self._behind: list[_Behind] = []
        self._scheduling: _Behind | None = None
        self._saved = -1
        self._told: Any = None
        writer = importlib.import_module(training.save_checkpoint.__module__)
        places: tuple[tuple[Any, str, Any], ...] = (
            (training, "load_checkpoint", self._load),
            (training, "train_step", self._step),
            (training, "checkpoint_and_decide_exit", self._decide),
            (training, "save_checkpoint", self._save),
            (writer, "schedule_async_save", self._schedule),
        )
        self._own = {name: getattr(place, name) for place, name, _ in places}  # all are there, or nothing is replaced
        self._places = {name: place for place, name, _ in places}
        for place, name, by in places:
            setattr(place, name, by)

    @property
    def ending(self) -> bool:
        """SIGTERM came to some rank: it is saved, and the loop ends."""
        return self._beside is not None and self._beside.ending

    @property
    def beside(self) -> Beside | None:
        """From the first call of Megatron on, because the ranks are there only then. None without --save."""
        args = self.training.get_args()
        if self._beside is None and args.save:
            if getattr(args, "save_retain_interval", None) is not None and self._keep is not None:
                remedy = "leave --save-retain-interval out, or set keep=None here"
                raise DiagnoseError("Megatron would delete checkpoints as well, also the last good one", remedy=remedy)
            self._beside = Beside(args.save, self._run, keep=self._keep, every_s=self._every_s)
            self._beside.listen()
        return self._beside

    def close(self) -> None:
        """Seal the last one, tell the rest, and leave Megatron as it was."""
        for name, place in self._places.items():
            setattr(place, name, self._own[name])
        if self._beside is not None:
            self._beside.close()

    def _load(self, model: Any, optimizer: Any, scheduler: Any, load_arg: str = "load", *words: Any, **how: Any) -> Any:
        """In place of ``load_checkpoint``, which gives the iteration and the number of operations so far."""
        args, beside = self.training.get_args(), self.beside
        given = model, optimizer, scheduler, load_arg, *words
        ours = (
            beside is not None and load_arg == "load" and args.load and Path(args.load).resolve() == Path(args.save).resolve()
        )
        if beside is None or not ours or args.ckpt_step:  # other weights to begin with, or a step that a person asks for
            return self._own["load_checkpoint"](*given, **how)
        self.found = beside.begin()
        if self.found.path is None:
            return (0, 0) if self.found.passed_over else self._own["load_checkpoint"](*given, **how)
        if self.found.path.parent.resolve() == Path(args.save).resolve():
            args.ckpt_step = self.found.step
        try:
            return self._own["load_checkpoint"](*given, **how)
        finally:
            args.ckpt_step = None  # Megatron saves its arguments with the next checkpoint

    def _step(self, *words: Any, **how: Any) -> Any:
        """In place of ``train_step``."""
        done = self._own["train_step"](*words, **how)
        self._told = done[0].get(self._loss)
        return done

    def _decide(
        self, model: Any, optimizer: Any, scheduler: Any, iteration: int, operations: Any, context: Any, data: Any = None
    ) -> bool:
        """In place of ``checkpoint_and_decide_exit``, which is called after each step."""
        ends = bool(self._own["checkpoint_and_decide_exit"](model, optimizer, scheduler, iteration, operations, context, data))
        beside = self.beside
        if beside is None:
            return ends
        # To read it waits for the GPU, so it is read at the steps at which Megatron does so for its log.
        reads = beside.around is not None and iteration % (getattr(self.training.get_args(), "log_interval", None) or 1) == 0
        loss = float(self._told) if self._told is not None and reads else None
        if beside.due(iteration, loss, writing=bool(self._behind)) and self._saved != iteration:
            self.training.save_checkpoint_and_time(
                iteration, model, optimizer, scheduler, operations, context, train_data_iterator=data
            )
        return ends or beside.ending

    def _save(self, iteration: int, *words: Any, **how: Any) -> Any:
        """In place of ``save_checkpoint``."""
        beside = self.beside
        if beside is None or how.get("non_persistent_ckpt") or how.get("release"):
            return self._own["save_checkpoint"](iteration, *words, **how)
        behind = _Behind(iteration, Path(self.training.get_args().save) / _NAMED.format(iteration))
        began = time.monotonic()
        self._scheduling = behind
        try:
            done = self._own["save_checkpoint"](iteration, *words, **how)
        finally:
            self._scheduling = None
        beside.stood(time.monotonic() - began)
        self._saved = iteration
        if behind.left:
            self._behind.append(behind)
        else:
            beside.complete(iteration, behind.path)  # it ends with a barrier, after the tracker
        return done

    def _schedule(self, request: Any, *words: Any, **how: Any) -> Any:
        """In place of ``schedule_async_save``. What is added to a request is called after all else that finishes it."""
        behind = self._scheduling
        if behind is None:
            return self._own["schedule_async_save"](request, *words, **how)
        behind.left += 1
        request.add_finalize_fn(lambda: self._finished(behind))
        try:
            return self._own["schedule_async_save"](request, *words, **how)
        except BaseException:
            behind.left -= 1
            raise

    def _finished(self, behind: _Behind) -> None:
        behind.left -= 1
        if not behind.left and behind in self._behind and self._beside is not None:  # not, if its saving has failed
            self._behind.remove(behind)
            self._beside.complete(behind.step, behind.path)
