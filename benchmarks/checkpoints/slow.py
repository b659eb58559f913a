"""Storage that writes so many bytes per second and rank: a layer over real files, for torch.save, DCP and ours alike."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, cast

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from diagnose.checkpoints.writer import HashingFiles

_PIECE = 1 << 20
RATE: float | None = None
"""bytes per second of this rank; None: as fast as the disk is"""


class SlowFile(io.RawIOBase):
    def __init__(self, path: Path, past: bool = False) -> None:
        """``past`` the kernel's cache: then all that is written must lie at the start of a page and be whole blocks."""
        self._file = path.open("wb", buffering=0)
        if past:
            fcntl.fcntl(self._file.fileno(), fcntl.F_SETFL, os.O_WRONLY | os.O_DIRECT)
        self._began, self._written = time.monotonic(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        piece = _PIECE if RATE is not None else max(1, len(view))
        for at in range(0, len(view), piece):
            left = view[at : at + piece]
            self._written += len(left)
            while left:
                left = left[self._file.write(left) :]
            if RATE is not None:
                time.sleep(max(0.0, self._began + self._written / RATE - time.monotonic()))
        return len(view)

    def tell(self) -> int:
        return self._written

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


class SlowFiles(FileSystem):  # type: ignore[misc,unused-ignore]  # torch may be missing where types are checked
    """DCP's door to the disk."""

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        if "w" not in mode:
            with super().create_stream(path, mode) as read:
                yield read
            return
        with SlowFile(Path(path)) as file:
            yield file


class SlowHashingFiles(HashingFiles):
    """Ours."""

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[IO[bytes]]:
        with SlowFile(path) as file:
            yield cast("IO[bytes]", file)


def dcp_writer(path: Path) -> FileSystemWriter:
    """DCP's own writer, on that storage. It syncs its files, as ours does."""
    writer = FileSystemWriter(path)
    writer.fs = SlowFiles()
    return writer
