"""A checkpoint -> whole, complete, unfinished or damaged, with reasons.

- *whole*: it has a manifest, and every byte was read and agrees with it.
- *complete*: all files are there and have the right sizes, and no checksum that was looked at disagrees. ``covered`` says how
  many of its bytes were read and have a checksum at all.
- *unfinished*: its writer has not finished.
- *damaged*: something in it is missing, cut, or different from what was written.

Work is done in threads, one block or one archive at a time. Reading and hashing let go of the interpreter lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diagnose.checkpoints import archives, manifest
from diagnose.checkpoints.formats import Reason, contents
from diagnose.checkpoints.found import Found
from diagnose.checkpoints.hashes import BLOCK, PIECE, block_of
from diagnose.checkpoints.plan import Part

Passed = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Checked:
    found: Found
    state: Literal["whole", "complete", "unfinished", "damaged"]
    size: int
    covered: int
    """bytes that were read and compared with a checksum"""
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    step: int | None = None
    """as the manifest says, or else the name"""
    files: int = 0

    @property
    def usable(self) -> bool:
        return self.state in ("whole", "complete")

    @property
    def why(self) -> str:
        """One sentence."""
        if self.reasons:
            first = self.reasons[0]
            more = f" ({len(self.reasons) - 1} more reasons)" if len(self.reasons) > 1 else ""
            return f"{f'{first.file}: ' if first.file else ''}{first.what}{more}"
        files = "the one file is" if self.files == 1 else f"all {self.files} files are"
        if self.state == "whole":
            return "all that was written agrees with the manifest"
        if self.covered:
            return f"{files} there; {self.covered / max(1, self.size):.1%} of the bytes have checksums, and these agree"
        return f"{files} there, with the right size; what is in it was not checked"


def check(found: Found, *, read: bool = True, threads: int = 0, passed: Passed | None = None) -> Checked:
    """Look at a checkpoint. Without ``read`` only at names and sizes. ``passed`` is told how many bytes were read."""
    told = passed or (lambda count: None)
    if found.sealed:
        return _sealed(found, read, threads, told)
    return _open(found, read, threads, told)


def _sealed(found: Found, read: bool, threads: int, passed: Passed) -> Checked:
    try:
        made = manifest.read(found.path)
    except manifest.ManifestError as error:
        return Checked(found, "damaged", 0, 0, (Reason("damaged", manifest.NAME, error.what),), step=found.step)
    if made is None:  # it was deleted between
        return Checked(found, "unfinished", 0, 0, (Reason("unfinished", manifest.NAME, "it is missing"),), step=found.step)
    reasons = list(sizes(found.path, made))
    reasons += differences(found.path, made, made.files, threads=threads, passed=passed) if read and not reasons else []
    extra = sorted(set(manifest.files_of(found.path)) - set(made.files))
    notes = (f"{len(extra)} files are not in the manifest, such as {extra[0]}",) if extra else ()
    state: Literal["whole", "complete", "damaged"] = "damaged" if reasons else "whole" if read else "complete"
    covered = made.size if state == "whole" else 0
    return Checked(found, state, made.size, covered, tuple(reasons), notes, made.step, len(made.files))


def sizes(folder: Path, made: manifest.Manifest) -> Iterator[Reason]:
    """Files that are missing, or do not have their size."""
    for name, one in made.files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            yield Reason("damaged", name, f"it is missing ({error.strerror})")
            continue
        if size != one.size:
            yield Reason("damaged", name, f"it has {size:,} bytes, and had {one.size:,} when it was written")


def differences(
    folder: Path, made: manifest.Manifest, names: Iterable[str], *, threads: int = 0, passed: Passed = lambda count: None
) -> list[Reason]:
    """Read these files, and compare each block with the manifest."""
    buffers = threading.local()
    wrong: dict[str, list[int]] = {}

    def compare(job: tuple[str, int, int]) -> None:
        name, handle, number = job
        if not hasattr(buffers, "own"):
            buffers.own = bytearray(PIECE)
        checksum, count = block_of(handle, number, buffers.own)
        if checksum != made.files[name].blocks[number]:
            wrong.setdefault(name, []).append(number)
        passed(count)

    failed: list[Reason] = []
    with ThreadPoolExecutor(threads or _cores()) as pool:
        for name in names:
            try:
                handle = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                failed.append(Reason("damaged", name, f"it cannot be opened ({error.strerror})"))
                continue
            try:
                list(pool.map(compare, ((name, handle, number) for number in range(len(made.files[name].blocks)))))
            except OSError as error:
                failed.append(Reason("damaged", name, f"it cannot be read ({error.strerror})"))
            finally:
                os.close(handle)
    return failed + [Reason("damaged", name, _where(numbers, made.files[name].size)) for name, numbers in sorted(wrong.items())]


def _where(numbers: list[int], size: int) -> str:
    first = min(numbers)
    last = min(size, (first + 1) * BLOCK)
    more = f" and {len(numbers) - 1} more blocks" if len(numbers) > 1 else ""
    return f"bytes {first * BLOCK:,} to {last:,}{more} differ from what was written"


def _open(found: Found, read: bool, threads: int, passed: Passed) -> Checked:
    """Of a checkpoint without a manifest."""
    made = contents(found)
    base = found.path.parent if found.path.is_file() else found.path
    total = sum((base / name).stat().st_size for name in made.files)
    jobs: list[Part | str] = [*made.archives, *made.parts]

    def one(job: Part | str) -> tuple[str, archives.ArchiveCheck]:
        if isinstance(job, str):
            return job, archives.check_file(base / job, read=read, passed=passed)
        with (base / job.file).open("rb") as file:
            result = archives.check(file, job.offset, job.length, read=read, passed=passed)
        return job.file, result if result.problem is None else archives.ArchiveCheck(0, f"{job.tensor!r}: {result.problem}")

    covered, reasons = 0, list(made.reasons)
    with ThreadPoolExecutor(threads or _cores()) as pool:
        for name, result in pool.map(_safely(one), jobs):
            covered += result.covered
            reasons += [Reason("damaged", name, result.problem)] if result.problem else []
    unfinished = any(reason.state == "unfinished" for reason in reasons)
    state: Literal["complete", "unfinished", "damaged"] = "unfinished" if unfinished else "damaged" if reasons else "complete"
    reasons.sort(key=lambda reason: reason.state != state)
    return Checked(found, state, total, covered if read else 0, tuple(reasons), tuple(made.notes), found.step, len(made.files))


def _safely(
    one: Callable[[Part | str], tuple[str, archives.ArchiveCheck]],
) -> Callable[[Part | str], tuple[str, archives.ArchiveCheck]]:
    def tried(job: Part | str) -> tuple[str, archives.ArchiveCheck]:
        try:
            return one(job)
        except OSError as error:
            name = job if isinstance(job, str) else job.file
            return name, archives.ArchiveCheck(0, f"it cannot be read ({error.strerror})")

    return tried


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
