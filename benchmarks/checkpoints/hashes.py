"""How fast the checksums are that Python has, and how fast ``verify`` reads beside ``cat``."""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from diagnose.checkpoints import manifest
from diagnose.checkpoints.found import find
from diagnose.checkpoints.hashes import Hasher
from diagnose.checkpoints.verify import check

_MB = 1_000_000


def hashes() -> None:
    """Processor time of each hash over the same 64 MB, the least of five. ``ours``: isal where it is installed."""
    data = os.urandom(64 * _MB)
    contenders: dict[str, Callable[[bytes], object]] = {
        "zlib.crc32": zlib.crc32,
        "ours": lambda data: Hasher().update(data),
        "zlib.adler32": zlib.adler32,
        "sha256": lambda data: hashlib.sha256(data).digest(),
        "sha1": lambda data: hashlib.sha1(data).digest(),
        "blake2b": lambda data: hashlib.blake2b(data).digest(),
        "md5": lambda data: hashlib.md5(data).digest(),
    }
    print(f"zlib {zlib.ZLIB_RUNTIME_VERSION}")
    first = None
    for name, work in contenders.items():
        took = min(_processor(work, data) for _ in range(5))
        first = first or took
        print(f"{name:14}{len(data) / took / 1e9:6.2f} GB/s of processor time {took / first:6.1f} times the first")


def _processor(work: Callable[[bytes], object], data: bytes) -> float:
    begin = time.process_time()
    work(data)
    return time.process_time() - begin


def reading(megabytes: int, folder: str | None = None) -> None:
    """``verify`` and plain reads of the same files, each after the kernel was asked to forget them, in turns."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = Path(name, "step_1")
        path.mkdir()
        for rank in range(2):
            with (path / f"__{rank}_0.distcp").open("wb") as file:
                for _ in range(megabytes // 2):
                    file.write(os.urandom(_MB))
        manifest.seal(path, 1)
        (found,) = find(path)
        for cold in (True, False):
            plain, ours = [], []
            for _ in range(5):
                plain.append(_seconds(lambda: _read(path), path, cold))
                ours.append(_seconds(lambda: _whole(check(found)), path, cold))
            ratio = statistics.median(b / a for a, b in zip(ours, plain, strict=True))
            print(
                f"{'from the disk' if cold else 'from memory'}: plain reads {megabytes / statistics.median(plain):,.0f} MB/s, "
                f"verify {megabytes / statistics.median(ours):,.0f} MB/s; verify is {ratio:.2f} as fast (median of 5 pairs)"
            )


def _whole(checked: object) -> None:
    assert getattr(checked, "state", None) == "whole", checked


def _read(path: Path) -> None:
    """One file after the other, as ``cat`` does it."""
    buffer = bytearray(16 << 20)
    for one in sorted(path.iterdir()):
        with one.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _seconds(work: Callable[[], object], path: Path, cold: bool) -> float:
    for one in path.iterdir() if cold else ():
        handle = os.open(one, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
