"""What is written past the kernel's cache is what was written, whatever its pieces and wherever the file lies."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

pytest.importorskip("torch")
from diagnose.checkpoints import stream as stream_of
from diagnose.checkpoints.hashes import hash_file
from diagnose.checkpoints.stream import HashingStream

MB = 1 << 20
PIECES = {
    "nothing": [],
    "one byte": [1],
    "a buffer": [16 * MB],
    "several buffers at once": [48 * MB],
    "buffers and a rest": [36 * MB + 17],
    "small ones and large ones": [3, 20 * MB + 1, 64, 16 * MB, 1, 12 * MB],
}


def wrote(path: Path, sizes: list[int], between: Callable[[HashingStream], object] = lambda stream: None) -> bytes:
    pieces = [random.Random(size).randbytes(size) for size in sizes]
    with path.open("wb", buffering=0) as file, HashingStream(file) as stream:
        for piece in pieces:
            assert stream.write(piece) == len(piece)
            between(stream)
        os.fsync(stream.fileno())
        assert path.stat().st_size == stream.tell(), "all is on its way when it is synced"
    assert stream.hasher.done() == hash_file(path)
    return b"".join(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", PIECES.values(), ids=PIECES)
def test_a_file_is_what_was_written(tmp_path: Path, sizes: list[int]) -> None:
    assert wrote(tmp_path / "file", sizes) == (tmp_path / "file").read_bytes()


@pytest.mark.slow
def test_a_file_that_is_synced_in_between_goes_on(tmp_path: Path) -> None:
    assert wrote(tmp_path / "file", [16 * MB + 5, 32 * MB], HashingStream.fileno) == (tmp_path / "file").read_bytes()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system that must have its cache")
def test_a_file_system_that_cannot_go_past_its_cache() -> None:
    path = Path("/dev/shm", f"diagnose-{os.getpid()}")
    try:
        assert wrote(path, [17 * MB + 1]) == path.read_bytes()
    finally:
        path.unlink()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what goes to the disk")
def test_large_pieces_go_past_the_cache(tmp_path: Path) -> None:
    """The disk has them when ``write`` of the next one returns, without a sync."""
    (tmp_path / "probe").touch()
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system cannot")
    before = to_disk()
    with (tmp_path / "file").open("wb", buffering=0) as file, HashingStream(file) as stream:
        stream.write(bytes(32 * MB))
        stream.write(bytes(16 * MB))
        assert dirty(tmp_path / "file") == 0
    assert to_disk() - before >= 32 * MB


def to_disk() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["write_bytes"])


def dirty(path: Path) -> int:
    """Pages of the file in the cache, by what a read without waiting finds there."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            pytest.skip("this file system does not say")


@pytest.mark.parametrize("said", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_refuses_the_write_gets_it_through_the_cache(tmp_path: Path, said: int) -> None:
    """Whatever it says: a write was once lost to the second."""

    class Refusing:
        def __init__(self, file: IO[bytes]) -> None:
            self._file = file

        def fileno(self) -> int:
            return self._file.fileno()

        def write(self, data: memoryview) -> int:
            if fcntl.fcntl(self._file.fileno(), fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(said, os.strerror(said))
            return self._file.write(data)

        def close(self) -> None:
            self._file.close()

    with (tmp_path / "file").open("wb", buffering=0) as file, HashingStream(Refusing(file)) as stream:  # type: ignore[arg-type]
        stream.write(bytes(17 * MB))
    assert (tmp_path / "file").stat().st_size == 17 * MB


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux shows what memory a process has")
def test_the_buffers_may_be_of_large_pages() -> None:
    buffer = stream_of._pages()
    begin, shown = f"{buffer.ctypes.data:x}-", Path("/proc/self/smaps").read_text().splitlines()
    (flags,) = [line.split()[1] for line in shown if line.startswith(begin)]
    assert flags == "rw-p", "pages that are shared are never large"


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    class Full:
        def __init__(self, file: IO[bytes]) -> None:
            self._file = file

        def fileno(self) -> int:
            return self._file.fileno()

        def write(self, data: memoryview) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            self._file.close()

    with (tmp_path / "file").open("wb", buffering=0) as file:
        stream = HashingStream(Full(file))  # type: ignore[arg-type]
        stream.write(bytes(16 * MB))  # it is only on its way
        with pytest.raises(OSError, match="No space left"):
            stream.fileno()
        stream.close()
