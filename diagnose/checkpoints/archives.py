"""Files of ``torch.save``: ZIP archives without compression, whose own CRC-32s torch writes, and never checks when it loads.

This reads the archive only. The pickle in it is data like all else, and is not run.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from diagnose.quantities import MIB

MAGIC = b"PK\x03\x04"
_PIECE = 4 * MIB
_UNREADABLE = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)
"""what zipfile raises for archives that are damaged, or made to look like one"""


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    covered: int
    """bytes that have a checksum, and were read if reading was asked for"""
    problem: str | None = None


class Slice(io.RawIOBase):
    """A part of a file, as a file of its own."""

    def __init__(self, file: BinaryIO, offset: int, length: int) -> None:
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence] + position)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        room = min(len(buffer), max(0, self._length - self._at))
        got = os.preadv(self._file.fileno(), [memoryview(buffer)[:room]], self._offset + self._at) if room else 0
        self._at += got
        return got


def check_file(path: Path, *, read: bool, passed: Callable[[int], None]) -> ArchiveCheck:
    """A whole file. ``passed`` is told how many bytes were read."""
    with path.open("rb") as file:
        return check(file, 0, os.fstat(file.fileno()).st_size, read=read, passed=passed)


def check(file: BinaryIO, offset: int, length: int, *, read: bool, passed: Callable[[int], None]) -> ArchiveCheck:
    """The archive in this part of a file: whether its directory is there, and with ``read`` whether its checksums agree."""
    part = io.BufferedReader(Slice(file, offset, length), _PIECE)
    if part.read(4) != MAGIC:
        return ArchiveCheck(0, "it does not begin as an archive of torch.save: it is damaged, or older than torch 1.6")
    try:
        archive = zipfile.ZipFile(part)
        records = archive.infolist()
    except _UNREADABLE as error:
        return ArchiveCheck(0, f"the directory at the end of the archive is missing or damaged ({_words(error)})")
    covered = sum(record.file_size for record in records)
    if covered > length:
        return ArchiveCheck(0, "its records claim more bytes than the file has")
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        return ArchiveCheck(0, "it has compressed records, which torch.save does not write")
    if not any(record.filename.rpartition("/")[2] in ("data.pkl", "constants.pkl") for record in records):
        return ArchiveCheck(0, "it has no data.pkl, so it is not an archive of torch.save")
    if not any(record.CRC for record in records):
        return ArchiveCheck(0)  # torch was told to write none
    wrong = [name for record in records if (name := _wrong(archive, record, passed))] if read else []
    if not wrong:
        return ArchiveCheck(covered)
    if len(wrong) == len(records):
        return ArchiveCheck(0, "no record agrees with its CRC-32")
    return ArchiveCheck(covered, f"{_named(wrong)} does not agree with its CRC-32")


def _wrong(archive: zipfile.ZipFile, record: zipfile.ZipInfo, passed: Callable[[int], None]) -> str | None:
    """The name of a record that is damaged."""
    try:
        with archive.open(record) as stream:
            while piece := stream.read(_PIECE):
                passed(len(piece))
    except _UNREADABLE:
        return record.filename
    return None


def _named(wrong: list[str]) -> str:
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"the record {wrong[0]!r}{more}"


def _words(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
