"""Verify, good and kept for checkpoints that another program writes. Free of torch; call it on one rank.

    around = Around("/out", run)
    start = around.resume()            # before the training
    ...
    around.saved(path, step, loss=…)   # when the other writer has finished: all its files are there

``saved`` reads what was written and seals it with a manifest. From then on a changed bit is found, whoever wrote it.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.found import NAMED, find
from diagnose.checkpoints.keeper import OWN, Keeper
from diagnose.checkpoints.verify import check
from diagnose.client import Resume, Run

_TORCHTITAN = r"step-[0-9]{1,15}"
_ANY = re.compile("|".join((OWN.pattern, _TORCHTITAN, *(name.pattern for name in NAMED.values()))))


@dataclass(frozen=True, slots=True)
class Begin:
    """Where to begin."""

    step: int | None
    path: Path | None
    skip: tuple[tuple[int, int], ...]
    why: str
    passed_over: int = 0
    """how many newer ones were not taken"""

    def skips(self, batch: int) -> bool:
        return any(first <= batch <= last for first, last in self.skip)


class Around:
    def __init__(self, path: str | Path, run: Run | None = None, *, keep: int | None = None) -> None:
        """``keep``: let diagnose delete old ones, and the other program none; None: it deletes nothing itself."""
        self.path = Path(path)
        self._run = run
        self.keeper = Keeper(self.path, run, keep, own=_ANY)

    def saved(self, path: str | Path, step: int, *, cost_s: float | None = None, **facts: float | str | bool | None) -> None:
        """Another writer has finished a checkpoint. ``cost_s``: how much time the training lost by it."""
        for name in (manifest.NAME, marks.NAME):  # of what was there before: after a roll-back a step comes again
            (Path(path) / name).unlink(missing_ok=True)
        self.keeper.forget(Path(path))  # so that an alarm that comes now is not judged by them
        manifest.seal(Path(path), step, facts)
        if self._run is not None:
            self._run.checkpoint(step, path, cost_s=cost_s)
        self.keeper.saved()

    def resume(self, *, proposed: bool = False) -> Begin:
        """The newest checkpoint that is whole, or complete where nobody sealed it, and not known to be bad."""
        asked = self._run.resume(proposed=proposed) if self._run is not None else Resume()
        over: list[str] = []
        for one in find(self.path) if self.path.is_dir() else ():
            if asked.skip and asked.step is not None and one.step is not None and one.step > asked.step:
                why = f"a roll-back goes back to step {asked.step}"
                marks.write(one.path, False, why)
                over.append(f"{one.path.name}: {why}")
                continue
            verdict = marks.read(one.path)
            if verdict is not None and verdict.good is False:
                over.append(f"{one.path.name}: {verdict.why}")
                continue
            checked = check(one)
            if checked.usable:
                more = f" Passed over: {'; '.join(over)}." if over else ""
                why = f"{one.path.name} is the newest that is {checked.state}.{more}"
                return Begin(checked.step, one.path, asked.skip, why, len(over))
            over.append(f"{one.path.name}: {checked.why}")
            with contextlib.suppress(OSError):
                marks.write(one.path, False, checked.why, damaged=checked.state == "damaged")
            if self._run is not None and one.step is not None:
                self._run.checkpoint(one.step, one.path, healthy=False, why=checked.why)
        why = f"There is none that can be used. Passed over: {'; '.join(over)}." if over else "There is no checkpoint."
        return Begin(None, None, asked.skip, why, len(over))
