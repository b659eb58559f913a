"""A folder, or the list that a service has -> the checkpoints of a training, and which of them can be evaluated.

A checkpoint that is still written changes. One with a manifest is complete; any other must have been left alone for a while,
and what is known of its format must be there. All bytes that have a checksum are read, since a changed bit would change the
scores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.checkpoints import found, keeper, manifest, marks, verify

_LOOKS = 3
"""A training deletes checkpoints while we look."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A checkpoint."""

    path: Path
    written_s: float
    """when its last file was written, in seconds since 1970: the newest is the one of the latest time, since steps go back"""
    step: int | None = None
    bad: str | None = None
    """why it is known to be bad"""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why it cannot be evaluated."""

    why: str
    for_good: bool
    """it will not become whole any more"""


def in_folder(folder: Path) -> list[Arrival]:
    """The checkpoints in a folder and a few folders below, in no order. Folders of programs that nobody here knows count if
    they stand in this folder and their names end with a number.
    """
    for _ in range(_LOOKS):
        with contextlib.suppress(OSError):
            return list(_looked(folder))
    return []


def of_service(said: Iterable[Mapping[str, Any]]) -> list[Arrival]:
    """From the rows of ``GET /v1/jobs/{job}/checkpoints``. Those that are not on this machine's storage are left out."""
    arrivals: dict[Path, Arrival] = {}
    for row in said:
        path, step, good = row.get("path"), row.get("step"), row.get("good")
        if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path or not isinstance(step, int):
            continue
        with contextlib.suppress(OSError):
            bad = str(row.get("why") or "the service calls it bad") if good is False else None
            # Reported twice, by two attempts: the rows are those of one checkpoint, and one that calls it bad counts.
            known = arrivals.get(Path(path))
            bad = bad or (known.bad if known is not None else None)
            arrivals[Path(path)] = Arrival(Path(path), written(Path(path)), step, bad)
    return list(arrivals.values())


def _looked(folder: Path) -> Iterator[Arrival]:
    known = found.find(folder) if folder.is_dir() else []
    for one in known:
        verdict = marks.read(one.path) if one.path.is_dir() else None
        bad = verdict.why if verdict is not None and verdict.good is False else None
        yield Arrival(one.path, written(one.path), one.step, bad)
    above = {parent for one in known for parent in (one.path, *one.path.parents)}
    for path in sorted(folder.iterdir()) if folder.is_dir() and folder not in {one.path for one in known} else ():
        step = found.step_of(path)
        if step is not None and path not in above and path.is_dir() and not path.is_symlink():
            yield Arrival(path, written(path), step)


def written(path: Path) -> float:
    """When it was written last. What is added later, such as a verdict, does not count where there is a manifest."""
    sealed = path / manifest.NAME
    if sealed.is_file():
        return sealed.stat().st_mtime
    files = [one.stat().st_mtime for one in path.rglob("*") if one.is_file()] if path.is_dir() else []
    return max(files, default=path.stat().st_mtime)


def unfit(arrival: Arrival, quiet_s: float, now: float, *, read: bool = True) -> Unfit | None:
    """Why it cannot be evaluated, or not yet. Without ``read`` only by names and sizes."""
    if arrival.bad is not None:
        return Unfit(arrival.bad, for_good=True)
    try:
        known = found.recognize(arrival.path)
        quiet = known is not None and known.sealed
        if not quiet and now - written(arrival.path) < quiet_s:
            return Unfit("it is still written", for_good=False)
        if known is None:
            empty = not any(one.is_file() for one in arrival.path.rglob("*"))
            return Unfit("it has no files", for_good=False) if empty else None
        checked = verify.check(known, read=read)
    except OSError as error:
        return Unfit(f"it cannot be read: {error}", for_good=False)
    return None if checked.usable else Unfit(f"it is {checked.state}: {checked.why}", for_good=checked.state == "damaged")


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """While it is evaluated, ``diagnose.checkpoints`` does not delete it."""
    with contextlib.ExitStack() as stack:
        if (path / manifest.NAME).is_file():
            stack.enter_context(keeper.using(path))
        yield
