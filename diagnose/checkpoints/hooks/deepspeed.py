"""Around an engine of DeepSpeed: its own checkpoints, verified, judged, kept, and written when it is time.

    diagnosed = Diagnosed(engine, "/out", diagnose.client.Run())    # on all ranks, after deepspeed.initialize
    diagnosed.begin()                                               # loads the newest good one, if there is one
    for batch in batches:
        ...
        engine.step()
        diagnosed.stepped(loss)                                     # saves when it is time, or when somebody asked
        if diagnosed.ending:
            break
    diagnosed.close()

``engine.save_checkpoint`` by yourself is sealed, too. It writes to one folder for all ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diagnose.checkpoints.around import Begin
from diagnose.checkpoints.hooks.beside import Beside
from diagnose.client import Run


class Diagnosed:
    def __init__(
        self,
        engine: Any,
        folder: str | Path,
        run: Run | None = None,
        *,
        keep: int | None = 3,
        every_s: float | None = None,
        every_steps: int | None = None,
    ) -> None:
        self.engine, self.folder = engine, Path(folder)
        self.beside = Beside(folder, run, keep=keep, every_s=every_s)
        self.beside.listen()
        self._every_steps = every_steps
        self._write = engine.save_checkpoint
        engine.save_checkpoint = self._save

    @property
    def ending(self) -> bool:
        """SIGTERM came to some rank: it is saved, and the training should end."""
        return self.beside.ending

    def begin(self, *, proposed: bool = False, **how: Any) -> Begin:
        """Load the newest one that can be used. ``how`` goes to ``engine.load_checkpoint``."""
        found = self.beside.begin(proposed=proposed)
        if found.path is not None:
            # "latest" may name a newer one, which is bad: the tag is given
            self.engine.load_checkpoint(str(found.path.parent), tag=found.path.name, **how)
        return found

    def stepped(self, loss: float | None = None) -> None:
        """After ``engine.step``, on all ranks."""
        if not self.engine.is_gradient_accumulation_boundary():
            return
        step = int(self.engine.global_steps)
        due = self.beside.due(step, float(loss) if loss is not None else None)
        if due or (self._every_steps is not None and step % self._every_steps == 0):
            self.engine.save_checkpoint(str(self.folder))

    def close(self) -> None:
        """Seal the last one, and tell the rest."""
        self.beside.close()

    def _save(self, save_dir: str, tag: str | None = None, *words: Any, **how: Any) -> Any:
        """In place of ``engine.save_checkpoint``."""
        step = int(self.engine.global_steps)
        with self.beside.saving(step) as facts:
            done = self._write(save_dir, tag, *words, **how)
            self._settle()
            facts["path"] = Path(save_dir) / (tag if tag is not None else f"global_step{step}")
        return done

    def _settle(self) -> None:
        """All ranks have written, also with a writer of DeepSpeed that goes on behind the training."""
        writer = getattr(self.engine, "checkpoint_engine", None)
        if writer is not None and getattr(writer, "is_decoupled", lambda: False)():
            self.engine._commit_decoupled_checkpoint()
        self.beside.barrier()
