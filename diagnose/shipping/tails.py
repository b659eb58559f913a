"""Growing files, also rotated and truncated ones -> pieces with their offsets. Nothing here waits or knows of a service."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from diagnose.shipping.destination import Owner
from diagnose.shipping.spool import FileState

HEAD = 256
_GRACE_S = 2.0
"""a writer that still has the rotated file open gets so long to finish its line"""
_MOST_SIBLINGS = 5000


class Piece(NamedTuple):
    """The next bytes of a source."""

    owner: Owner
    offset: int
    data: bytes
    after: FileState | None
    """the state of its file once this piece is safe"""


class Tail:
    """One path. ``state`` says how far it is safe; ``read`` looks ahead, ``commit`` moves on."""

    def __init__(self, state: FileState, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = state
        self.problems: list[str] = []
        """what was lost and why; the reader empties it"""
        self._clock = clock
        self._descriptor: int | None = None
        self._replaced_at: float | None = None
        self._finished: set[tuple[int, int]] = set()

    def read(self, size: int) -> Piece | None:
        """Up to ``size`` new bytes, or None if there are none at present."""
        for _ in range(4):  # a rotation may follow a rotation
            if self._descriptor is None and not self._open():
                return None
            assert self._descriptor is not None
            self._check_head()
            data = os.pread(self._descriptor, size, self.state.position)
            if data:
                after = copy.copy(self.state)
                after.position += len(data)
                if len(after.head) < HEAD:
                    after.head = os.pread(self._descriptor, min(HEAD, after.position), 0)
                return Piece(self.state.owner, self.state.offset, data, after)
            if not self._next_file():
                return None
        return None

    def commit(self, piece: Piece) -> None:
        """A piece that was read is now safe."""
        assert piece.after is not None
        self.state = piece.after

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def size(self) -> int:
        """Size of the file now."""
        with contextlib.suppress(OSError):
            return os.fstat(self._descriptor).st_size if self._descriptor is not None else os.stat(self.state.path).st_size
        return 0

    @property
    def gone(self) -> bool:
        """Whether the file no longer exists and all of it was read."""
        return self._descriptor is None and not os.path.exists(self.state.path)

    # --- which file is it

    def _open(self) -> bool:
        state = self.state
        if state.inode and (old := self._rotated_while_away()) is not None:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(old, os.O_RDONLY)
                return True
        try:
            self._descriptor = os.open(state.path, os.O_RDONLY)
        except OSError:
            return False
        status = os.fstat(self._descriptor)
        if not state.inode:
            self._begin(status)
        elif (status.st_dev, status.st_ino) != (state.device, state.inode):
            self.problems.append(
                f"{state.path}: was rotated while nobody looked; what it held after byte {state.position:,} is gone"
            )
            self._begin(status)
        elif status.st_size < state.position:
            self._cut_back()
        return True

    def _begin(self, status: os.stat_result | None) -> None:
        """Another file continues the last one. None: it does not exist yet."""
        self.state = copy.copy(self.state)
        self.state.base += self.state.position
        self.state.position = 0
        self.state.device, self.state.inode = (status.st_dev, status.st_ino) if status else (0, 0)
        self.state.head = b""

    def _cut_back(self) -> None:
        assert self._descriptor is not None
        self._begin(os.fstat(self._descriptor))

    def _check_head(self) -> None:
        """Notice a file that was cut back and has grown past our position: it begins with other bytes."""
        assert self._descriptor is not None
        head = self.state.head
        if head and os.pread(self._descriptor, len(head), 0) != head:
            self._cut_back()

    def _next_file(self) -> bool:
        """At the end of the open file: whether there is more to read in another one."""
        assert self._descriptor is not None
        status = os.fstat(self._descriptor)
        if status.st_size < self.state.position:
            self._cut_back()
            return status.st_size > 0
        try:
            now = os.stat(self.state.path)
        except OSError:
            if status.st_nlink == 0:  # removed, and read to its end
                self.close()
                self._begin(None)
            return False
        if (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino):
            self._replaced_at = None
            return False
        if self._replaced_at is None:
            self._replaced_at = self._clock()
        if self._clock() - self._replaced_at < _GRACE_S:
            return False
        self._replaced_at = None
        self._finished.add((status.st_dev, status.st_ino))
        following = self._generation_after(status, (now.st_dev, now.st_ino)) or self.state.path
        try:
            descriptor = os.open(following, os.O_RDONLY)
        except OSError:
            return False
        self.close()
        self._descriptor = descriptor
        self._begin(os.fstat(descriptor))
        return True

    def _generation_after(self, old: os.stat_result, current: tuple[int, int]) -> Path | None:
        """A file that was begun and rotated away while we read the one before it."""
        found: list[tuple[int, Path]] = []
        for sibling in _siblings(Path(self.state.path)):
            with contextlib.suppress(OSError):
                status = os.stat(sibling)
                identity = status.st_dev, status.st_ino
                if (
                    identity != current
                    and identity not in self._finished
                    and status.st_mtime_ns >= old.st_mtime_ns
                    and status.st_size
                ):
                    found.append((status.st_mtime_ns, sibling))
        return min(found)[1] if found else None

    def _rotated_while_away(self) -> Path | None:
        """The file that we were reading, if it now has a second name. Reading it shows whether it is really that file: it may
        have been cut back before, or be a later one with the number of a deleted file.
        """
        state = self.state
        with contextlib.suppress(OSError):
            status = os.stat(state.path)
            if (status.st_dev, status.st_ino) == (state.device, state.inode):
                return None
        path = Path(state.path)
        for sibling in _siblings(path):
            with contextlib.suppress(OSError):
                status = os.stat(sibling)
                if (status.st_dev, status.st_ino) == (state.device, state.inode):
                    return sibling
        return None


_GENERATION = re.compile(r"[.-]\d[\d._T:-]*")


def _siblings(path: Path) -> Iterator[Path]:
    """Names that rotation makes: job.log.1, job.log-20260911. Not job.log.err, nor job.log.1.gz."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for number, entry in enumerate(entries):
            if number > _MOST_SIBLINGS:
                return
            if entry.name.startswith(path.name) and _GENERATION.fullmatch(entry.name, len(path.name)):
                yield Path(entry.path)
