"""How DCP's own writer becomes one that hashes: the same files, and a manifest that it writes last. Needs torch.

Each rank hashes what passes by on its way to the disk, so nothing is read again. The hashes travel to rank 0 with what DCP
itself gathers there, and ``finish`` commits. So it is the same in a thread and in a process of its own, and takes no message
more.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import os
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy
import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.planner import WriteItemType
from torch.futures import Future
from torch.serialization import get_crc32_options, set_crc32_options

from diagnose.checkpoints import manifest
from diagnose.checkpoints.hashes import FileHash, give_way
from diagnose.checkpoints.stream import HashingStream

_MOST_NAMES = 1000
_INFINITE = {
    torch.float16: (torch.int16, numpy.uint16, 0x7C00),
    torch.bfloat16: (torch.int16, numpy.uint16, 0x7F80),
    torch.float32: (torch.int32, numpy.uint32, 0x7F800000),
    torch.float64: (torch.int64, numpy.uint64, 0x7FF0000000000000),
}
"""type of numbers -> whole numbers of the same size, without a sign, and what infinity is among them"""


@dataclass(frozen=True, slots=True)
class _Hashes:
    """What one rank wrote; it travels among DCP's results."""

    files: Mapping[str, FileHash]
    nan: tuple[str, ...] = ()
    """names of tensors that hold what is not a number"""
    inf: tuple[str, ...] = ()
    """likewise, what is infinite"""


class HashingFiles(FileSystem):  # type: ignore[misc,unused-ignore]  # torch may be missing where types are checked
    """DCP's door to files, with hashes of all that was written through it."""

    def __init__(self) -> None:
        self.written: dict[str, FileHash] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        if "w" not in mode:
            with super().create_stream(path, mode) as read:
                yield read
            return
        with self.opened(Path(path)) as file:
            stream = HashingStream(file)
            try:
                yield stream
            finally:
                stream.close()
        self.written[Path(path).name] = stream.hasher.done()

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[IO[bytes]]:
        """The file itself. Without a buffer: torch writes whole tensors."""
        with path.open("wb", buffering=0) as file:
            yield cast("IO[bytes]", file)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


class HashingWriter(FileSystemWriter):  # type: ignore[misc,unused-ignore]
    """DCP's writer, with a manifest at the end. Its files are those that DCP alone writes and reads."""

    def __init__(
        self, path: Path, step: int, facts: Mapping[str, Any], files: HashingFiles | None = None, *, apart: bool = False
    ) -> None:
        """``apart``: it writes in a process of its own."""
        super().__init__(path, overwrite=False)
        self.fs: HashingFiles = files or HashingFiles()
        self._step, self._facts, self._apart = step, dict(facts), apart

    def write_data(self, plan: Any, planner: Any) -> Future[list[Any]]:
        give_way(self._apart)
        nan, inf = not_finite(plan, planner)
        with _hashed_once():
            results = super().write_data(plan, planner).value()
        done: Future[list[Any]] = Future()
        done.set_result([*results, _Hashes(dict(self.fs.written), nan, inf)])
        return done

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """On rank 0, when all ranks have written and synced their files."""
        hashes = [one for rank in results for one in rank if isinstance(one, _Hashes)]
        super().finish(metadata, [[one for one in rank if not isinstance(one, _Hashes)] for rank in results])
        files = {name: file for one in (*hashes, _Hashes(self.fs.written)) for name, file in one.files.items()}
        nan = sorted({name for one in hashes for name in one.nan})[:_MOST_NAMES]
        inf = sorted({name for one in hashes for name in one.inf})[:_MOST_NAMES]
        facts = {**self._facts, **({"nan": nan} if nan else {}), **({"inf": inf} if inf else {})}
        made = manifest.Manifest(self._step, files, time.time(), facts)
        manifest.commit(Path(self.path), made, synced=True)


@contextlib.contextmanager
def _hashed_once() -> Iterator[None]:
    """torch leaves the CRC-32s out of its archives, which it never compares: the manifest has one of each byte.

    Only where this setting is one of the thread. In an older torch it is one of the process, and what the training saves by
    itself meanwhile would have none, either.
    """
    before = get_crc32_options()
    set_crc32_options(False)
    if before and not contextvars.Context().run(get_crc32_options):
        set_crc32_options(before)
    try:
        yield
    finally:
        set_crc32_options(before)


def not_finite(plan: Any, planner: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the tensors of a plan that hold what is not a number, and of those that hold what is infinite."""
    nan: set[str] = set()
    inf: set[str] = set()
    for item in plan.items:
        if item.type == WriteItemType.BYTE_IO:
            continue
        values = planner.resolve_data(item).detach()
        if not values.is_floating_point() or not values.numel():
            continue
        worst = _worst(values)
        if worst is not None:
            (nan if worst == "nan" else inf).add(item.index.fqn)
    return tuple(sorted(nan)), tuple(sorted(inf))


def _worst(values: torch.Tensor) -> str | None:
    """nan, inf or None.

    The bits of a number that is not finite are greater, as a whole number, than those of any other with the same sign. So two
    searches for the greatest are enough. numpy makes them in one thread and without the interpreter lock; torch would take all
    cores from the training.
    """
    if values.dtype not in _INFINITE:
        values = values.float()
    whole, unsigned, infinite = _INFINITE[values.dtype]
    bits = values.contiguous().view(whole).numpy()
    sign = 1 << (8 * values.element_size() - 1)
    above = max(int(bits.max()) - infinite, int(bits.view(unsigned).max()) - infinite - sign)
    return "nan" if above > 0 else "inf" if above == 0 else None


def pins() -> bool:
    """Whether there is an accelerator, whose copies are quicker to memory that stays in its place."""
    return bool(torch.cuda.is_available())
