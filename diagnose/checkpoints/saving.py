"""Save and resume: ``Checkpoints``, around PyTorch Distributed Checkpoint. Needs torch.

    checkpoints = Checkpoints("/ckpt", run)       # on all ranks
    start = checkpoints.resume(state)             # the same on all ranks; fills in ``state``
    for step in range(start.step, steps):
        ...
        if checkpoints.due(step + 1):
            checkpoints.save(step + 1, state)     # returns when the state is copied
    checkpoints.close()

``save`` copies the state to memory of the host and returns. The copy is written behind the training. The same memory is used
for each copy, so the next ``save`` first waits until the last one is written. What went wrong is raised by the next call.

All ranks need the same folder. It holds one folder per checkpoint, which DCP alone can read.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.asking import Asking
from diagnose.checkpoints.behind import Behind, fetch, verdict_of
from diagnose.checkpoints.exact import Losses
from diagnose.checkpoints.found import Found, find, step_of
from diagnose.checkpoints.keeper import OWN, Keeper, using
from diagnose.checkpoints.kept import THIN
from diagnose.checkpoints.places import Place, place_of
from diagnose.checkpoints.verify import check, differences
from diagnose.checkpoints.writer import HashingFiles, HashingWriter, pins
from diagnose.client import Resume, Run
from diagnose.errors import DiagnoseError

log = logging.getLogger("diagnose.checkpoints")
T = TypeVar("T")
_AFTER: Final = "it was saved after batch"
_MOST_TOLD: Final = 3
_HOW: Final = {"thread": AsyncCheckpointerType.THREAD, "process": AsyncCheckpointerType.PROCESS}


class CheckpointError(DiagnoseError):
    """A checkpoint could not be saved or loaded."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where the training begins. The same on all ranks."""

    step: int
    """steps done; 0 if there is no checkpoint"""
    path: Path | None
    skip: tuple[tuple[int, int], ...]
    """(first, last) number of batches to leave out"""
    why: str
    passed_over: tuple[tuple[Path, str], ...] = ()
    """newer ones that were not taken, with the reason"""

    def skips(self, batch: int) -> bool:
        return any(first <= batch <= last for first, last in self.skip)


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint that is being written."""

    step: int
    path: Path
    future: Future[None]


class Checkpoints:
    """The checkpoints of one training, on each of its ranks."""

    def __init__(
        self,
        path: str | Path,
        run: Run | None = None,
        *,
        keep: int | None = 3,
        thin: Sequence[tuple[float, int]] = THIN,
        every_s: float | None = None,
        between_failures_s: float | None = None,
        behind: str | Path | Place | None = None,
        how: Literal["thread", "process"] = "thread",
        files: Callable[[], HashingFiles] = HashingFiles,
    ) -> None:
        """``keep``: how many stay at least; None deletes nothing. ``thin``: which of the older ones stay (``kept.THIN``).
        ``every_s``: a fixed interval, instead of the best one by what was measured and by ``between_failures_s``.
        ``behind``: a second place, to which complete ones are uploaded: another folder, or the address of an object store.
        ``how``: what writes behind the training. ``files``: another door to the disk.
        """
        self.path = Path(path)
        self._ranks = dist.is_available() and dist.is_initialized()
        self.rank: int = dist.get_rank() if self._ranks else 0
        self._group: Any = dist.new_group(backend="gloo") if self._ranks else None
        self._talk: Any = dist.new_group(backend="gloo") if self._ranks else None  # beside what is written meanwhile
        self._run = run if self.rank == 0 else None
        self.keeper = Keeper(self.path, self._run, keep, thin) if self.rank == 0 else None
        """on rank 0"""
        place = place_of(behind) if isinstance(behind, str | Path) else behind
        self._place = place if self.rank == 0 else None
        self.behind = Behind(self.path, place, keep, thin) if place is not None and self.rank == 0 else None
        """on rank 0, if there is a second place: its ``newest`` and its ``problem``"""
        self.losses = Losses(self.path) if self.rank == 0 else None
        """on rank 0; ``losses.exactness`` says whether the training is the one of before, some steps after a resume"""
        self.asking = Asking(between_failures_s, every_s)
        self._next_look = 0
        self._ending = False
        self._how, self._files = _HOW[how], files
        pinned = pins()
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=pinned,
                use_shared_memory=how == "process",
                use_async_staging=False,
                use_non_blocking_copy=pinned,
            )
        )
        self._saving: Saving | None = None
        self.stood_s = 0.0
        """how long the last ``save`` held the training up"""
        self._look_s = 0.0
        self.wrote_s: float | None = None
        """how long the last write took, behind the training"""

    # Saving

    def save(self, step: int, state: Mapping[str, Any], **facts: float | str | bool | None) -> Path:
        """Copy the state, and begin to write it. Returns where it will be, complete, some time later.

        ``facts`` go into the manifest, such as ``loss=2.31``. Call it on all ranks.
        """
        began = time.monotonic()
        self.wait()
        path = self._on_first(lambda: self._room_for(step))
        writer = HashingWriter(path, step, facts, self._files(), apart=self._how is AsyncCheckpointerType.PROCESS)
        future = async_save(
            dict(state),
            storage_writer=writer,
            process_group=self._group,
            async_checkpointer_type=self._how,
            async_stager=self._stager,
            no_dist=not self._ranks,
        )
        complete: Future[None] = Future()
        self._saving = Saving(step, path, complete)
        future.add_done_callback(self._completes(complete, step, path))  # type: ignore[union-attr,unused-ignore]
        self.stood_s = time.monotonic() - began
        self.asking.saved(self.stood_s)
        return path

    def due(self, step: int) -> bool:
        """Whether to save now. Call it after each step, on all ranks: the answer is the same on all.

        It is time by the interval, a signal came to any rank (``listen``), or the service asked for it.
        """
        self.asking.stepped(self._saving is not None and not self._saving.future.done())
        if step < self._next_look:
            return False
        began = time.monotonic()
        self._hear()
        due, ending = (self.asking.due(self.wrote_s) and self.rank == 0) or self.asking.now is not None, self.asking.ending
        if self._ranks:
            told = torch.tensor([due, ending, self.asking.steps_between_looks(self._look_s) if self.rank == 0 else 0])
            dist.all_reduce(told, dist.ReduceOp.MAX, group=self._talk)
            due, ending, between = bool(told[0]), bool(told[1]), int(told[2])
            self._next_look = step + between
        self._look_s = time.monotonic() - began
        ends = ending and not self._ending
        self._ending = self._ending or ending
        return due or ends  # what was saved after the signal and before all ranks heard of it is older

    def listen(self, *numbers: signal.Signals) -> None:
        """Save now when one of these signals comes to this rank: SIGTERM and SIGUSR1 if none is named. In the main thread."""
        self.asking.listen(*(numbers or (signal.SIGTERM, signal.SIGUSR1)))

    @property
    def ending(self) -> bool:
        """SIGTERM came to some rank: save, close, and end. It changes in ``due``, on all ranks at the same step."""
        return self._ending

    def loss(self, step: int, loss: float) -> None:
        """The loss of a step, of which rank 0's counts: told to the service, recorded, compared with that before a resume."""
        if self.keeper is None or self.losses is None:
            return
        if self._run is not None:
            self._run.progress(step, loss=loss)
        if not math.isfinite(loss):
            self.keeper.alarm(step, f"the loss is {loss}")
        verdict = self.losses.note(step, loss)
        if verdict is not None:
            log.log(logging.WARNING if verdict.state == "not exact" else logging.INFO, "%s", verdict.why)

    def alarm(self, step: int, said: str, kind: str = "loss") -> None:
        """Something went wrong from this step on: a loss, a gradient norm. What it spoils is not started from any more."""
        if self.keeper is not None:
            self.keeper.alarm(step, said, kind)

    def _hear(self) -> None:
        """What the service said in its last answer."""
        word = self._run.word if self._run is not None else None
        self.asking.hear(word)
        if self.keeper is not None:
            self.keeper.hear(word)

    def wait(self) -> None:
        """Until the checkpoint that is being written is complete. Raises what went wrong with it."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.future.result()
        except (Exception, CheckpointException) as error:  # the latter is no Exception
            raise CheckpointError(
                f"the checkpoint of step {saving.step} was not saved: {_first_line(error)}",
                where=str(saving.path),
                remedy="an older one is still there; look at the disk, and save again",
            ) from error

    def close(self, upload_s: float | None = None) -> None:
        """Wait for the last write and its upload (at most ``upload_s``), and give the memory back."""
        try:
            self.wait()
            if self.behind is not None:
                self.behind.close(upload_s)
        finally:
            self.asking.close()
            self._stager.close()

    def _completes(self, complete: Future[None], step: int, path: Path) -> Callable[[Future[Any]], None]:
        """When it is written: the service is told, all are judged, and old ones are deleted. Then it is complete."""
        began = time.monotonic()

        def done(written: Future[Any]) -> None:
            self.wrote_s = time.monotonic() - began
            failed = written.exception()
            try:
                if failed is None and self.keeper is not None:
                    if self._run is not None:
                        self._run.checkpoint(step, path, cost_s=self.stood_s + self.asking.pace.slowed_s)
                    self.keeper.saved()
                    if self.behind is not None:
                        self.behind.saved(path, self.keeper.alarms)
            except Exception as error:
                failed = error
            complete.set_exception(failed) if failed is not None else complete.set_result(None)

        return done

    def _room_for(self, step: int) -> Path:
        """A folder for it. What was begun and not completed is cleared. A complete one stays, and the new one gets a number."""
        self.path.mkdir(parents=True, exist_ok=True)
        path, number = self.path / f"step_{step:09}", 1
        while (path / manifest.NAME).exists():
            number += 1
            path = self.path / f"{number}-step_{step:09}"
        if path.exists():
            shutil.rmtree(path)
        return path

    # Resuming

    def resume(self, state: dict[str, Any] | None = None, *, proposed: bool = False) -> Start:
        """Find where to begin: the newest checkpoint that is whole and not known to be bad. Call it on all ranks.

        The service is asked first: after a roll-back it names an older step, and the batches to leave out. Each candidate is
        verified by all ranks together. ``state`` is filled in from the checkpoint, if there is one.
        """
        start = self._found(state, proposed)
        if self.losses is not None:
            self.losses.resumed(start.step)
        return start

    def _found(self, state: dict[str, Any] | None, proposed: bool) -> Start:
        self.wait()
        asked = self._on_first(lambda: self._run.resume(proposed=proposed) if self._run is not None else Resume())
        passed_over: list[tuple[Path, str]] = []
        for found, against, away in self._on_first(lambda: self._candidates(asked)):
            why, mended = (against, None) if against else self._unusable(found, away)
            if why is None:
                with using(found.path) if self.rank == 0 else contextlib.nullcontext():
                    return self._begin(found, asked, passed_over, mended, state)
            log.warning("%s is passed over: %s", found.path, why)
            passed_over.append((found.path, why))
        why = "There is no checkpoint that can be used." if passed_over else "There is no checkpoint."
        return Start(0, None, asked.skip, f"{why} The training begins anew.", tuple(passed_over))

    def _candidates(self, asked: Resume) -> list[tuple[Found, str | None, bool]]:
        """Newest first, with what is known against it; and whether it is only at the second place."""
        known = self._here(asked)
        whole = {one.path.name for one, _, _ in known if one.sealed and not _is_damaged(one.path)}
        for name in self._names_behind():
            one = Found(self.path / name, "dcp", step_of(Path(name)), sealed=True)
            if name not in whole and one.step is not None:
                verdict = verdict_of(self._place, name) if self._place is not None else None
                bad = f"it is bad: {verdict.why}" if verdict is not None and verdict.good is False else None
                known.append((one, bad or _spoilt(one, asked), True))
        return sorted(known, key=lambda one: _age(one[0]), reverse=True)

    def _names_behind(self) -> list[str]:
        try:
            return [name for name in self._place.names() if OWN.fullmatch(name)] if self._place is not None else []
        except OSError as error:
            log.warning("the second place is not looked at: %s", error)
            return []

    def _fetched(self, found: Found) -> str | None:
        """Bring the copy at the second place to the first. What is wrong, if it cannot be had."""

        def work() -> str | None:
            if self._place is None:
                return "there is no second place"
            try:
                fetch(self._place, found.path.name, found.path)
            except DiagnoseError as error:
                return f"{error.what} ({error.where})"
            log.info("%s was fetched from %s", found.path.name, self._place)
            return None

        return self._on_first(work)

    def _here(self, asked: Resume) -> list[tuple[Found, str | None, bool]]:
        known: list[tuple[Found, str | None, bool]] = []
        for one in find(self.path) if self.path.is_dir() else ():
            if one.writer != "dcp":
                continue
            against: str | None
            if not one.sealed:
                against = "it is unfinished: it has no manifest"
            elif (verdict := marks.read(one.path)) is not None and verdict.good is False:
                against = f"it is bad: {verdict.why}"
            elif (against := _spoilt(one, asked)) is not None and against.startswith(_AFTER):
                marks.write(one.path, False, against)  # the same step, saved again, is another checkpoint
            known.append((one, against, False))
        return known

    def _unusable(self, found: Found, away: bool) -> tuple[str | None, str | None]:
        """Why neither copy of a checkpoint can be used. Only then is the step bad, and the service told so. Else what was wrong
        with the one copy, if the other one took its place."""
        if away and (missing := self._fetched(found)) is not None:
            return missing, None
        mended = None
        why = self._damage(found)
        if why is not None and not away and self._fetched(found) is None:  # the other copy
            mended, why = why, self._damage(found)
            log.warning("%s was damaged: %s. Its copy at the second place was fetched instead.", found.path, mended)
        if why is not None and self.rank == 0 and self._run is not None and found.step is not None:
            self._run.checkpoint(found.step, found.path, healthy=False, why=why)
        return why, mended

    def _damage(self, found: Found) -> str | None:
        """What is wrong with the bytes of a checkpoint. Each rank reads its share."""
        first = self._on_first(lambda: self._outside(found))
        if first is None:
            made = manifest.read(found.path)
            count = dist.get_world_size() if self._ranks else 1
            names = sorted(made.files, key=lambda name: -made.files[name].size)[self.rank :: count] if made is not None else []
            try:
                reasons = (
                    [f"{one.file}: {one.what}" for one in differences(found.path, made, names)] if made else ["it is gone"]
                )
            except OSError as error:
                reasons = [str(error)]
            first = next(iter(reason for rank in self._all(reasons) for reason in rank), None)
        if first is not None and self.rank == 0:
            with contextlib.suppress(OSError):
                marks.write(found.path, False, first, damaged=True)
        return first

    def _outside(self, found: Found) -> str | None:
        """What the manifest and the sizes say."""
        checked = check(found, read=False)
        return None if checked.usable else checked.why

    def _begin(
        self,
        found: Found,
        asked: Resume,
        passed_over: list[tuple[Path, str]],
        mended: str | None,
        state: dict[str, Any] | None,
    ) -> Start:
        made = manifest.read(found.path)
        assert made is not None
        if state is not None:
            try:
                load(state, checkpoint_id=found.path, process_group=self._group, no_dist=not self._ranks)
            except CheckpointException as error:
                remedy = "build the model and the optimizer as they were when it was saved"
                raise CheckpointError(
                    f"it is whole, and does not fit the state: {_first_line(error)}", where=str(found.path), remedy=remedy
                ) from error
        why = f"Step {made.step} is the newest whole checkpoint."
        if mended is not None:
            why += f" Its copy here was damaged ({mended}), and the one at the second place was fetched."
        if passed_over:
            told = "; ".join(f"{path.name}: {reason}" for path, reason in passed_over[:_MOST_TOLD])
            why += f" {len(passed_over)} newer {'was' if len(passed_over) == 1 else 'were'} passed over: {told}."
        if asked.skip and asked.why:
            why += f" The service says: {asked.why}"
        return Start(made.step, found.path, asked.skip, why, tuple(passed_over))

    # Among ranks

    def _on_first(self, work: Callable[[], T]) -> T:
        """Done on rank 0; all ranks get the result, or raise what it raised."""
        if not self._ranks:
            return work()
        told: list[Any] = [None, None]
        if self.rank == 0:
            try:
                told[0] = work()
            except Exception as error:
                told[1] = CheckpointError(_first_line(error), where=str(self.path), remedy="look at the log of rank 0")
        dist.broadcast_object_list(told, src=0, group=self._talk)
        if told[1] is not None:
            raise told[1]
        result: T = told[0]
        return result

    def _all(self, own: T) -> list[T]:
        """What each rank has."""
        if not self._ranks:
            return [own]
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, own, group=self._talk)
        return every


def _age(found: Found) -> tuple[int, int]:
    """By step; one that was saved again after a roll-back is newer."""
    number, dash, _ = found.path.name.partition("-")
    return found.step if found.step is not None else -1, int(number) if dash and number.isdigit() else 1


def _spoilt(found: Found, asked: Resume) -> str | None:
    """Whether a roll-back that was decided spoils it."""
    first = min((first for first, _ in asked.skip), default=None)
    limit = asked.step if asked.step is not None else first
    if first is None or limit is None or found.step is None or found.step <= limit:
        return None
    if found.step <= first:
        return f"the service goes back to step {limit}, which is known to be good"
    return f"{_AFTER} {first}, from which a roll-back goes back"


def _first_line(error: BaseException) -> str:
    """What a person needs of an error of DCP, which has the tracebacks of all ranks."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict) and failures:
        rank, (inner, *_) = next(iter(failures.items()))
        return f"rank {rank}: {_first_line(inner)}"
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _is_damaged(path: Path) -> bool:
    """Whether an earlier run found that the bytes of this copy changed. Then the other copy is looked for."""
    verdict = marks.read(path)
    return verdict is not None and verdict.damaged
