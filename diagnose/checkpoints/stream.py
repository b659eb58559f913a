"""A file that is hashed while it is written, past the kernel's cache where that is possible. Needs numpy.

What goes through the cache is copied by the kernel into new pages, and written by another of its threads: that takes more of
the processor than all else in a write, and the training needs the processor. What goes past the cache (``O_DIRECT``) is fetched
by the disk itself. It must begin at a page, so it is copied into a buffer first. While one buffer is on its way to the disk,
the other is filled.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, Final

import numpy

from diagnose.checkpoints.hashes import Hasher
from diagnose.quantities import MIB

_BUFFER: Final = 16 * MIB
"""few and large: each is a hand-over between threads, and where the training fills the processor each of them has to wait"""
_PAST: Final = getattr(os, "O_DIRECT", 0)


class HashingStream(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        """``file``: without a buffer of its own, at its beginning."""
        self._file = file
        self.hasher = Hasher()
        self._buffers = [_pages(), _pages()]
        self._filled = 0
        self._disk = ThreadPoolExecutor(1)  # its thread begins with the first full buffer
        self._under_way: Future[None] | None = None
        self._past: bool | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            part = view[at : at + _BUFFER - self._filled]
            self.hasher.update(part)
            # numpy copies without the interpreter lock
            numpy.copyto(self._buffers[0][self._filled : self._filled + len(part)], numpy.frombuffer(part, numpy.uint8))
            self._filled += len(part)
            at += len(part)
            if self._filled == _BUFFER:
                self._wait()
                self._under_way = self._disk.submit(self._put, self._buffers[0].data)
                self._buffers.reverse()
                self._filled = 0
        return len(view)

    def tell(self) -> int:
        return self.hasher.size

    def fileno(self) -> int:
        """Who asks for it wants to sync the file: so all that was written is on its way before."""
        self._drain()
        return self._file.fileno()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._drain()
        finally:
            super().close()
            self._disk.shutdown()
            self._file.close()

    def _drain(self) -> None:
        self._wait()
        if self._filled:  # no whole number of blocks: only the cache takes it, and nothing can go past it from here on
            self._set_past(False)
            rest, self._filled = self._filled, 0
            self._put(self._buffers[0].data[:rest])

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _put(self, view: memoryview) -> None:
        if self._past is None:
            self._set_past(True)
        while view:
            try:
                view = view[self._file.write(view) :]
            except OSError as error:  # a disk of larger blocks, a short write before, or a file system that cannot after all
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP) or not self._past:
                    raise
                self._set_past(False)

    def _set_past(self, past: bool) -> None:
        """Past the kernel's cache, where that can be (tmpfs cannot), or through it from here on."""
        if past or self._past:
            with contextlib.suppress(OSError):
                flags = fcntl.fcntl(self._file.fileno(), fcntl.F_GETFL)
                fcntl.fcntl(self._file.fileno(), fcntl.F_SETFL, flags | _PAST if past else flags & ~_PAST)
                self._past = past
                return
        self._past = False


def _pages() -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
    """A buffer that begins at a page: of large ones, where the kernel has them, as each page costs when it is first used."""
    pages = mmap.mmap(-1, _BUFFER, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared ones are never large
    with contextlib.suppress(OSError, AttributeError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return numpy.frombuffer(pages, numpy.uint8)
