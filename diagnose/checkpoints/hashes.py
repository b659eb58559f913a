"""The checksums of a file: one CRC-32 per block of 16 MiB.

CRC-32 is in Python's standard library, is several times faster than any cryptographic hash there, and lets go of the
interpreter lock. Where isal is installed it is several times faster again (docs/checkpoints.md has the figures). It finds every
error of up to 32 neighbouring bits, and misses one of four billion others. It does not protect from a person who changes a file
on purpose: whoever can do that can also write a new manifest.

Blocks make the check parallel also within one file, and say where in the file the damage is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from diagnose.quantities import MIB

try:
    from isal.isal_zlib import crc32  # the same number, with the processor's own instructions for it
except ImportError:
    from zlib import crc32

BLOCK = 16 * MIB
PIECE = MIB // 2
_NICE = 10
"""above the training's own. More would be too much: whoever waits for the processor may hold the interpreter lock"""
_NICEST = 19


@dataclass(frozen=True, slots=True)
class FileHash:
    """What a file must look like."""

    size: int
    blocks: tuple[int, ...]
    """CRC-32 of each block of ``BLOCK`` bytes; the last block is what is left"""


class Hasher:
    """Checksums of what passes by, in order."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[int] = []
        self._last = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            room = BLOCK - self.size % BLOCK
            piece = view[:room]
            self._last = crc32(piece, self._last)
            self.size += len(piece)
            view = view[room:]
            if self.size % BLOCK == 0:
                self._blocks.append(self._last)
                self._last = 0

    def done(self) -> FileHash:
        rest = (self._last,) if self.size % BLOCK else ()
        return FileHash(self.size, (*self._blocks, *rest))


def give_way(apart: bool = False) -> None:
    """Let the training have the processor first, in this thread: only Linux knows a priority per thread. ``apart``: this is a
    process of its own, which holds no lock that the training waits for."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(
            os.PRIO_PROCESS, threading.get_native_id(), _training() + (_NICEST if apart else _NICE)
        )  # the kernel knows none above 19


@functools.cache  # a process that only writes does it in its first thread
def _training() -> int:
    """The priority of the training: that of the first thread, before it gave way itself."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def block_of(file: int, number: int, buffer: bytearray) -> tuple[int, int]:
    """Checksum and size of one block of an open file. It is read in pieces of ``buffer``, which fit the processor's cache."""
    at, end, checksum = number * BLOCK, (number + 1) * BLOCK, 0
    view = memoryview(buffer)
    while at < end and (got := os.preadv(file, [view[: end - at]], at)):
        checksum = crc32(view[:got], checksum)
        at += got
    return checksum, at - number * BLOCK


def hash_file(path: Path) -> FileHash:
    """Read a file and hash it."""
    buffer = bytearray(PIECE)
    found: list[int] = []
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while (block := block_of(file, len(found), buffer))[1]:
            found.append(block[0])
            if block[1] < BLOCK:
                return FileHash((len(found) - 1) * BLOCK + block[1], tuple(found))
        return FileHash(len(found) * BLOCK, tuple(found))
    finally:
        os.close(file)
