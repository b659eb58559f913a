"""What rank 0 does with the checkpoints that are there: judge them, tell the service, delete what is not needed any more.

Verdicts are written beside the manifests, so they outlive the process. A bad checkpoint stays bad: the step that is reached
again after a roll-back is another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, Protocol

from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.found import step_of
from diagnose.checkpoints.good import NUMBERS, Alarm, Judged, Saved, judge
from diagnose.checkpoints.kept import THIN, Candidate, to_delete
from diagnose.client import Word

log = logging.getLogger("diagnose.checkpoints")
OWN: Final = re.compile(r"(?:[0-9]+-)?step_[0-9]{9,18}")
"""how the folders of our own checkpoints are named; no other folder is ever deleted"""
STATES: Final[dict[bool | None, Literal["good", "bad", "open"]]] = {True: "good", False: "bad", None: "open"}
"""of a mark"""


class Service(Protocol):
    """Whoever is told; ``diagnose.client.Run`` is one."""

    def checkpoint(
        self, step: int, path: str | os.PathLike[str], *, healthy: bool | None = None, why: str | None = None
    ) -> None:
        """A checkpoint, and what is known of it."""


class Keeper:
    def __init__(
        self,
        path: Path,
        service: Service | None = None,
        keep: int | None = 3,
        thin: Sequence[tuple[float, int]] = THIN,
        own: re.Pattern[str] = OWN,
    ) -> None:
        """``keep``: how many stay at least; None deletes nothing. ``thin``: which of the older ones stay (``kept.THIN``).
        ``own``: how the folders are named that are judged and deleted.
        """
        self._own = own
        self.path, self._service, self._keep, self._thin = path, service, keep, thin
        self.alarms: list[Alarm] = []
        self._doubts: dict[Path, str] = {}
        self._heard: Word | None = None
        self._read: dict[Path, Saved] = {}
        self._infinite: frozenset[str] | None = None
        self._lock = threading.RLock()  # the training raises alarms while what writes behind it judges
        self._began = time.time()

    def alarm(self, step: int, said: str, kind: str = "loss") -> None:
        """Something went wrong from this step on. What it spoils is bad from now on. One alarm about the numbers is open at a
        time; a hang or a broken machine is of its moment."""
        over = None if kind in NUMBERS else step
        with self._lock:
            if any(one.kind == kind and (one.over is None or one.step == step) for one in self.alarms):
                return
            self.alarms.append(Alarm(step, said, kind, over))
            self.judged()

    def doubt(self, step: int, path: str | None, said: str) -> None:
        """Something speaks against a checkpoint: the one of this path, or else the latest of this step."""
        with self._lock:
            folders = [one for one in self._folders() if one.name == Path(path).name] if path is not None else []
            folders = folders or [one for one in self._folders() if step_of(one) == step][-1:]
            for folder in folders:
                self._doubts[folder] = said
            self.judged()

    def hear(self, word: Word | None) -> None:
        """What the service says of this training. It says it again with each answer."""
        if word is None or word == self._heard:
            return
        self._heard = word
        for one in word.alarms:
            if one.kind == "score":
                self.doubt(one.step, one.path, one.why)
            else:
                self.alarm(one.step, one.why, one.kind)

    def alarm_over(self, step: int) -> None:
        """All alarms are over at this step."""
        self.alarms = [one if one.over is not None else replace(one, over=step) for one in self.alarms]

    def forget(self, path: Path) -> None:
        """What is known of what was in this folder before: another program writes a step again in its place."""
        with self._lock:
            self._read.pop(path, None)
            self._doubts.pop(path, None)

    def saved(self) -> None:
        """A checkpoint was completed."""
        with self._lock:
            known = self.judged()
            if self._keep is None:
                return
            for one in to_delete(known, self._keep, self.alarms, time.time(), self._thin):
                delete(one.path)
            for path in self._folders():
                ours = OWN.fullmatch(path.name) is not None  # another program's may be complete without a manifest
                if ours and not (path / manifest.NAME).exists() and path.stat().st_mtime < self._began:
                    shutil.rmtree(path, ignore_errors=True)  # of a run that ended while it was written

    def judged(self) -> list[Candidate]:
        """All that are complete, with verdicts. What changed is written down and told."""
        with self._lock:
            return self._judged()

    def _judged(self) -> list[Candidate]:
        places = [path for path in self._folders() if (path / manifest.NAME).is_file()]
        facts = {path: one for path in places if (one := self._facts(path)) is not None}
        found = []
        for path, one in facts.items():
            before = marks.read(path)
            if before is not None and before.good is False:
                judged = Judged("bad", before.why)
            else:
                doubt = self._doubts.get(path) or (before.why if before is not None and before.doubted else None)
                judged = judge(replace(one, doubt=doubt), list(facts.values()), self.alarms)
                self._note(path, one.step, judged, before)
            at = (path / manifest.NAME).stat().st_mtime
            found.append(Candidate(path, one.step, at, judged, busy=in_use(path)))
        return found

    def _folders(self) -> list[Path]:
        """The oldest step first."""
        own = [path for path in self.path.iterdir() if self._own.fullmatch(path.name)] if self.path.is_dir() else []
        return sorted(own, key=lambda path: (step_of(path) or 0, path.name))

    def _note(self, path: Path, step: int, judged: Judged, before: marks.Verdict | None) -> None:
        if before is not None and (STATES[before.good], before.doubted) == (judged.state, judged.doubted):
            return
        good = {"good": True, "bad": False, "open": None}[judged.state]
        marks.write(path, good, judged.why, doubted=judged.doubted)
        if self._service is not None:
            self._service.checkpoint(step, path, healthy=good, why=judged.why)

    def _facts(self, path: Path) -> Saved | None:
        """What its manifest says."""
        if path not in self._read:
            try:
                made = manifest.read(path)
            except manifest.ManifestError as error:
                log.warning("%s", error)
                return None
            if made is None:
                return None
            nan, inf, score = (made.facts.get(name) for name in ("nan", "inf", "evaluation"))
            infinite = frozenset(inf if isinstance(inf, list) else [])
            if self._infinite is None:
                self._infinite = infinite  # masks are made of infinite numbers: what is so from the beginning is meant so
            names = (*(nan if isinstance(nan, list) else []), *sorted(infinite - self._infinite))
            number = float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None
            self._read[path] = Saved(made.step, no_numbers=tuple(map(str, names)), evaluation=number)
        return self._read[path]


def delete(path: Path) -> None:
    """Delete a checkpoint, so that half of it is never taken for a whole one, and not while somebody has it in use."""
    with contextlib.suppress(OSError), alone(path) as free:
        if free:
            (path / manifest.NAME).unlink()
            shutil.rmtree(path)


@contextlib.contextmanager
def using(path: Path) -> Iterator[None]:
    """While a checkpoint is read or uploaded. Nobody who asks deletes it meanwhile, on this machine or on another one."""
    with (path / manifest.NAME).open("rb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Whether nobody uses it, and nobody begins to meanwhile."""
    with (path / manifest.NAME).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            log.warning("%s: the file system has no locks, so a checkpoint that is read may be deleted", path)
        yield True


def in_use(path: Path) -> bool:
    try:
        with alone(path) as free:
            return not free
    except OSError:
        return True
