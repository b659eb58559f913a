"""kill -9 and power cuts at random moments over two ranks that save all the time; then they start again, and so on.

After each kill the last checkpoint that was *reported* whole is known: rank 0 writes it down where the service would hear of
it. The next start must find a whole one, and never an older one than that.

A power cut is made of a kill and of what the kernel has not been asked to keep. The ranks write down each file that they
create, rename and sync (and each folder). After the kill, what was not synced is taken away by chance: a file that was not
synced is cut at a random place, and a name whose folder was not synced is gone or is the old one again. So it is a simulation,
of a file system that keeps no order: that is worse than ext4 and XFS.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.diagnose.checkpoints.ranks import begin

_LONGEST_S = 90.0


def kills(count: int, seed: int, folder: str | None) -> None:
    chance = random.Random(seed)
    moments: Counter[str] = Counter()
    wrong: list[str] = []
    reported = resumed = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        for number in range(count):
            power = number % 2 == 1
            step = _one(place, chance, power)
            if step is None:
                wrong.append(f"kill {number}: it did not start")
                continue
            resumed += 1
            if step < reported:
                wrong.append(f"kill {number}: it started from step {step}, and step {reported} was reported whole")
            moments["during a write"] += _unfinished(place)
            reported = max(_reported(place), step)
            if power:
                moments["with a power cut"] += 1
    print(
        f"{count} kills of two ranks, {moments['with a power cut']} of them with a power cut, {moments['during a write']}",
        end=" ",
    )
    print(f"during a write: {resumed} starts from a whole checkpoint or the beginning, {len(wrong)} wrong;", end=" ")
    print(f"step {reported} at the end, after {time.monotonic() - began:.0f} s")
    for one in wrong:
        print("WRONG", one)


def _one(place: Path, chance: random.Random, power: bool) -> int | None:
    """Start, let them save for a while, kill. Returns the step that they started from."""
    started = place / "started"
    started.unlink(missing_ok=True)
    journal = place / "journal"
    journal.unlink(missing_ok=True)
    ranks, _ = begin(2, place, _rank, str(place), str(journal) if power else None)
    until = time.monotonic() + _LONGEST_S
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.01)
    step = int(started.read_text() or 0) if started.exists() else None
    time.sleep(chance.uniform(0.0, 0.8))
    first, second = chance.sample(ranks, 2)
    _kill(first.pid)
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0.0, 0.2))  # the other one is alone for a while
    _kill(second.pid)
    for rank in ranks:
        rank.join(20)
    if power:
        _cut(journal, place / "ckpt", chance)
    return step


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reported(place: Path) -> int:
    path = place / "reported"
    return max((int(line) for line in path.read_text().split()), default=0) if path.exists() else 0


def _unfinished(place: Path) -> bool:
    return any(not (path / "diagnose-manifest.json").exists() for path in (place / "ckpt").iterdir())


class _Service:
    """Where rank 0 reports: a line in a file, as the service would have stored it."""

    word = None

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def resume(self, *, proposed: bool = False) -> Any:
        from diagnose.client import Resume

        return Resume()

    def checkpoint(
        self, step: int, path: Path, *, healthy: bool | None = None, why: str | None = None, cost_s: float | None = None
    ) -> None:
        if healthy is None and why is None:
            self._file.write(f"{step}\n")
            self._file.flush()


def _rank(rank: int, name: str, journal: str | None) -> None:
    import torch

    from diagnose.checkpoints.saving import Checkpoints

    place = Path(name)
    if journal is not None:
        _watch(Path(journal))
    checkpoints = Checkpoints(place / "ckpt", _Service(place / "reported"), keep=2, thin=())  # type: ignore[arg-type]
    state: dict[str, Any] = {"step": 0, **{f"rank{rank}.{n}": torch.zeros(250_000) for n in range(4)}}
    start = checkpoints.resume(state)
    values = {float(state[f"rank{rank}.{n}"][0]) for n in range(4)} | {float(state["step"])}
    if values != {float(start.step)}:
        raise AssertionError(f"the state is of {values}, and the step {start.step}")
    if rank == 0:
        beside = place / "started.part"
        beside.write_text(str(start.step))
        beside.rename(place / "started")
    for step in range(start.step + 1, 10**9):
        state["step"] = step
        for n in range(4):
            state[f"rank{rank}.{n}"].fill_(step)
        checkpoints.save(step, state)


def _watch(journal: Path) -> None:
    """Write down what the disk is asked for. A kill does not lose it: it is the kernel's by then."""
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: str) -> None:
        os.write(log, (json.dumps(words) + "\n").encode())

    sync, rename, opened, mkdir = os.fsync, Path.rename, Path.open, Path.mkdir

    def seen_sync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        sync(handle)
        note("sync", path)

    def seen_rename(self: Path, to: Any) -> Path:
        note("rename", str(self), str(to))
        return rename(self, to)

    def seen_open(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if "w" in mode:
            note("create", str(self))
        return opened(self, mode, *rest, **more)

    def seen_mkdir(self: Path, *rest: Any, **more: Any) -> None:
        if not self.exists():
            note("create", str(self))
        mkdir(self, *rest, **more)

    os.fsync, Path.rename, Path.open, Path.mkdir = seen_sync, seen_rename, seen_open, seen_mkdir  # type: ignore[assignment,method-assign]


def _cut(journal: Path, folder: Path, chance: random.Random) -> None:
    """Take away what was not synced."""
    dirty: dict[str, bool] = {}
    names: list[tuple[str, str, str]] = []
    for line in journal.read_text().splitlines() if journal.exists() else ():
        what, path, *to = json.loads(line)
        if not path.startswith(str(folder)):
            continue
        if what == "create":
            dirty[path] = True
            names.append(("create", path, path))
        elif what == "rename":
            dirty[to[0]] = dirty.pop(path, False)
            names.append(("rename", path, to[0]))
        else:
            dirty[path] = False
            names = [one for one in names if str(Path(one[2]).parent) != path]
    for path, unsynced in dirty.items():
        if unsynced and Path(path).is_file():
            os.truncate(path, chance.randint(0, Path(path).stat().st_size))
    for what, path, to in reversed(names):
        if chance.random() < 0.5 or not Path(to).exists():
            continue
        if what == "rename":
            Path(to).rename(path)
        elif Path(to).is_dir():
            shutil.rmtree(to)
        else:
            Path(to).unlink()
