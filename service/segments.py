"""The journal's files: how a record is written, and how records are found again if a disk has damaged some.

A record stands alone. It begins with a mark, names its stream, and has three checksums: of its head, of the stream's name, and
of its data. So damage only costs the record that it hits:

- Damaged data: the head says whose bytes are missing, and which ones.
- A damaged head or name: the checksum repairs one flipped bit. After more damage nobody knows whose record it was; the reader
  goes on at the next mark.

The mark is random for each segment and is part of the segment's name. Log text is hostile: without a random mark, a log could
contain what looks like a record of another job, which would be found if the record around it is damaged.
"""

from __future__ import annotations

import json
import secrets
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

STREAM, DATA, CONTROL = 1, 2, 3
"""kinds of records; in the first version streams had their own records"""
ENDING = ".journal"
HEADING = b"diagnose journal 2\n\0\0\0\0\0"
"""for people and ``file``; the reader uses the segment's name, in which no bit of the data can flip"""
_HEAD = struct.Struct("<QIIIIIB3xQQQQ")
"""mark; CRC of the rest of the head, of the name, of the data; length of the data, of the name; kind; LSN, offset, key, ms"""
_BEHIND = 12
"""where the part of the head begins that its CRC covers"""
_FIRST_FRAME = struct.Struct("<IIQQQQIB3x")
"""of the first version: CRC of the rest, length of the data, LSN, offset, key, ms, stream, kind"""
_FIRST_HEADING = b"diagnose journal 1\n\0\0\0\0\0"
_LARGEST = 64 << 20
_LONGEST_NAME = 1 << 16
_PIECE = 1 << 20

Owner = tuple[str, int]
"""job and attempt; a segment is needed until the database has what its owners wrote"""


@dataclass(frozen=True, slots=True)
class Definition:
    """What the bytes belong to. ``source`` is empty if they are about the attempt itself."""

    job: str
    attempt: int
    source: str = ""
    rank: int | None = None
    node: str | None = None

    @property
    def owner(self) -> Owner:
        return self.job, self.attempt

    def as_bytes(self) -> bytes:
        return json.dumps([self.job, self.attempt, self.source, self.rank, self.node]).encode()

    @staticmethod
    def of(data: bytes) -> Definition:
        return Definition(*json.loads(data))


class Record(NamedTuple):
    """One record, as recovery finds it."""

    lsn: int
    kind: int
    stream: Definition
    offset: int
    key: int
    at_ms: int
    data: bytes
    lost: int = 0
    """so many bytes were its data and are damaged; ``data`` is empty"""


class Damage(NamedTuple):
    """Bytes of a segment that are no longer a record. Nobody knows whose they were."""

    path: Path
    at: int
    size: int


def name_of(lsn: int) -> tuple[str, int]:
    """(the name of a new segment that begins with ``lsn``, its mark)."""
    mark = secrets.randbits(64)
    return f"{lsn:020d}-{mark:016x}{ENDING}", mark


def first_lsn(path: Path) -> int | None:
    """The LSN that a segment begins with, from its name."""
    number = path.stem.partition("-")[0]
    return int(number) if number.isdecimal() else None


def framed(mark: int, lsn: int, kind: int, name: bytes, offset: int, key: int, at_ms: int, data: bytes) -> tuple[bytes, bytes]:
    """(head and name, data) of a record, to be written one after the other."""
    names, datas = zlib.crc32(name), zlib.crc32(data)
    head = _HEAD.pack(mark, 0, names, datas, len(data), len(name), kind, lsn, offset, key, at_ms)
    return _HEAD.pack(
        mark, zlib.crc32(head[_BEHIND:]), names, datas, len(data), len(name), kind, lsn, offset, key, at_ms
    ) + name, data  # fmt: skip


def mended(block: bytes, crc: int) -> bytes | None:
    """``block`` as it was when ``crc`` was made of it, if at most one bit of either has changed since."""
    found = zlib.crc32(block)
    if found == crc or (found ^ crc).bit_count() == 1:
        return block
    draft = bytearray(block)
    for at in range(len(draft)):
        for bit in (1, 2, 4, 8, 16, 32, 64, 128):
            draft[at] ^= bit
            if zlib.crc32(draft) == crc:
                return bytes(draft)
            draft[at] ^= bit
    return None


class _Head(NamedTuple):
    """The beginning of a record, and where it ends."""

    lsn: int
    kind: int
    offset: int
    key: int
    at_ms: int
    data_crc: int
    length: int
    name: bytes | None
    """None: damaged"""
    end: int


class Reader:
    """Reads one segment from its beginning, and goes on if it has grown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - as long as the reader
        self._format = _format_of(path, self._file)
        self.end = len(HEADING) if self._format.readable else 0
        """end of the last record, good or damaged"""
        self._damaged = False

    @property
    def damaged(self) -> bool:
        """Whether something could not be read, or only because a bit was repaired."""
        return self._damaged or self._format.mended

    def records(self, until: int) -> Iterator[Record | Damage]:
        """Every record that ends by byte ``until``, and every damaged one that a good one follows."""
        while self._format.readable and self.end < until:
            head = self._format.head(self.end, until)
            if head is None:
                again = self._format.next_mark(self.end + 1, until)
                if again is None:
                    return
                self._damaged = True
                yield Damage(self.path, self.end, again - self.end)
                self.end = again
                continue
            at, self.end = self.end, head.end
            stream = self._format.stream(head)
            if stream is None:
                self._damaged = True
                yield Damage(self.path, at, head.end - at)
                continue
            data = _read(self._file, head.end - head.length, head.length)
            whole = zlib.crc32(data) == head.data_crc
            self._damaged = self._damaged or not whole
            if head.kind != STREAM:
                yield Record(
                    head.lsn, head.kind, stream, head.offset, head.key, head.at_ms,
                    data if whole else b"", 0 if whole else head.length,
                )  # fmt: skip

    def is_unfinished(self, size: int) -> bool:
        """Whether the bytes after the last record, up to ``size``, are a record that was only partly written."""
        return self._format.is_unfinished(self.end, size) or _all_zero(self._file, self.end, size)

    def close(self) -> None:
        self._file.close()


class _Format:
    """Records that stand alone."""

    readable = True
    mended = False
    """whether a bit was repaired"""

    def __init__(self, file: BinaryIO, mark: int) -> None:
        self._file, self._mark = file, mark
        self._needle = struct.pack("<Q", mark)
        self._streams: dict[bytes, Definition] = {}

    def head(self, at: int, until: int) -> _Head | None:
        block = _read(self._file, at, _HEAD.size)
        if len(block) < _HEAD.size or not (whole := self._mended(block)):
            return None
        _, _, name_crc, data_crc, length, name_length, kind, lsn, offset, key, at_ms = _HEAD.unpack(whole)
        end = at + _HEAD.size + name_length + length
        if end > until or length > _LARGEST or name_length > _LONGEST_NAME:
            return None
        written = _read(self._file, at + _HEAD.size, name_length)
        name = mended(written, name_crc)
        self.mended = self.mended or whole != block or name != written
        return _Head(lsn, kind, offset, key, at_ms, data_crc, length, name, end)

    def _mended(self, block: bytes) -> bytes | None:
        mark, crc = struct.unpack_from("<QI", block)
        if zlib.crc32(block[_BEHIND:]) == crc:
            return block if (mark ^ self._mark).bit_count() <= 1 else None
        rest = mended(block[_BEHIND:], crc) if mark == self._mark else None
        return block[:_BEHIND] + rest if rest is not None else None

    def stream(self, head: _Head) -> Definition | None:
        if head.name is None:
            return None
        known = self._streams.get(head.name)
        if known is None:
            known = self._streams[head.name] = Definition.of(head.name)
        return known

    def next_mark(self, at: int, until: int) -> int | None:
        """Where the next record with a good head begins."""
        while at < until:
            piece = _read(self._file, at, min(_PIECE, until - at))
            found = piece.find(self._needle)
            if found < 0:
                at += max(1, len(piece) - len(self._needle) + 1)
                if len(piece) < _PIECE:
                    return None
            elif self.head(at + found, until) is not None:
                return at + found
            else:
                at += found + 1
        return None

    def is_unfinished(self, at: int, size: int) -> bool:
        block = _read(self._file, at, _HEAD.size)
        if len(block) < _HEAD.size:
            return block[: len(self._needle)] == self._needle[: len(block)]
        mark, crc, _, _, length, name_length, *_ = _HEAD.unpack(block)
        good = mark == self._mark and zlib.crc32(block[_BEHIND:]) == crc
        return bool(good and at + _HEAD.size + name_length + length > size)


class _FirstFormat:
    """What earlier versions wrote. Streams have their own records, so the first damage ends what can be read of a segment.

    The next record is not searched for: without a random mark, text in a log could pass for one.
    """

    mended = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.readable = _read(file, 0, len(_FIRST_HEADING)) == _FIRST_HEADING
        self._streams: dict[int, Definition] = {}

    def head(self, at: int, until: int) -> _Head | None:
        block = _read(self._file, at, _FIRST_FRAME.size)
        if len(block) < _FIRST_FRAME.size:
            return None
        crc, length, lsn, offset, key, at_ms, number, kind = _FIRST_FRAME.unpack(block)
        end = at + _FIRST_FRAME.size + length
        if length > _LARGEST or end > until:
            return None
        data = _read(self._file, at + _FIRST_FRAME.size, length)
        if zlib.crc32(data, zlib.crc32(block[4:])) != crc:
            return None
        if kind == STREAM:
            self._streams[number] = Definition.of(data)
        return _Head(lsn, kind, offset, key, at_ms, zlib.crc32(data), length, b"%d" % number, end)

    def stream(self, head: _Head) -> Definition | None:
        return self._streams.get(int(head.name or b"0"))

    def next_mark(self, at: int, until: int) -> int | None:
        return None

    def is_unfinished(self, at: int, size: int) -> bool:
        block = _read(self._file, at, _FIRST_FRAME.size)
        return len(block) < _FIRST_FRAME.size or at + _FIRST_FRAME.size + _FIRST_FRAME.unpack(block)[1] > size


def _format_of(path: Path, file: BinaryIO) -> _Format | _FirstFormat:
    mark = path.name.removesuffix(ENDING).partition("-")[2]
    try:
        return _Format(file, int(mark, 16))
    except ValueError:
        return _FirstFormat(file)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _all_zero(file: BinaryIO, at: int, size: int) -> bool:
    """Whether all bytes are zero. File systems leave this if they gave room to a write and lost power before its bytes came."""
    while at < size:
        piece = _read(file, at, min(_PIECE, size - at))
        if not piece or piece.strip(b"\0"):
            return False
        at += len(piece)
    return True
