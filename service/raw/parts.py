"""The raw bytes of one source on disk: parts of small zstd frames, which can be read from any byte or line on.

- A part is a zstd file that ``zstdcat`` reads. Before each frame stands a skippable frame, the head. It says where the frame's
  bytes begin in the source, how many lines came before them, and how many end in them. To find a place, read head after head.
- What is appended counts once it is synced (``commit``). A torn tail is cut off when the log is opened for writing again.
- Missing bytes (a full disk, a limit) leave a gap, which readers are told of. No other bytes ever take their place.
- Heads and frames have checksums. What the disk damaged is a gap too, of one frame: the next good head is searched for.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import zstandard

from diagnose.packed import unpacked
from diagnose.redaction.stream import begun_key
from service.journal import sync_folder

FRAME = 1 << 20
"""most bytes of a source in one frame"""
PART = 64 << 20
"""about the size of a part on disk"""
LONGEST = 65_536
"""bytes of a line that are read; the rest of a longer line is counted"""
REDACTED, UNCOUNTED = 1, 2
_HEAD = struct.Struct("<II4sIQQIIII")
"""zstd's magic of a skippable frame, its length, our tag, CRC of what follows: offset, lines before, length, lines that end in
it, packed length, flags
"""
_MAGIC, _TAG = 0x184D2A5D, b"dgRL"
_REST = struct.Struct("<QQIIII")
_MARK = struct.pack("<II4s", _MAGIC, _HEAD.size - 8, _TAG)
"""how each head begins"""
_ENDING = ".zst"


class Frame(NamedTuple):
    """Where some bytes of the source are."""

    path: Path
    at: int
    """where the packed bytes begin in the file"""
    offset: int
    before: int
    """lines that end before it"""
    length: int
    lines: int
    """lines that end in it"""
    packed: int
    flags: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def redacted(self) -> bool:
        """Whether its bytes were changed: the place of each line is known, but not of each byte."""
        return bool(self.flags & REDACTED)

    @property
    def counted(self) -> bool:
        """Whether the number of lines before it is known. It is not if the bytes before it were never seen."""
        return not self.flags & UNCOUNTED

    def data(self) -> bytes:
        with open(self.path, "rb") as file:
            packed = os.pread(file.fileno(), self.packed, self.at)
        return unpacked(packed, 4 * FRAME)


class Part(NamedTuple):
    path: Path
    offset: int
    before: int


@dataclass(slots=True)
class Written:
    """Bytes on their way to disk."""

    file: int
    size: int
    """size of the part before the write"""
    end: int
    lines: int
    new: int
    """bytes on disk"""
    key: bytes = b""


class RawLog:
    """The log of one source, opened for writing by one thread."""

    def __init__(self, folder: Path, part: int = PART) -> None:
        self.folder = folder
        self._most = part
        self.part: Path | None = None
        self._size = 0
        self.end = 0
        """the offset of what comes next"""
        self.lines = 0
        self.counted = True
        self.described = False
        """the folder says what it belongs to; used by the archive"""
        self._key = b""
        """the end of what was appended, if it may be the beginning of a private key"""
        self._recover()

    def _recover(self) -> None:
        for part in reversed(parts(self.folder)):
            good = last = None
            for frame in frames_of(part.path):
                good, last = last, frame
            # All but the last were synced before the next was written.
            last = last if last is None or _whole(last) else good
            if last is None:
                part.path.unlink()
                continue
            self.part, self._size = part.path, last.at + last.packed
            os.truncate(part.path, self._size)
            self.end, self.lines, self.counted = last.end, last.before + last.lines, last.counted
            return

    def skip(self, offset: int, lines: int | None) -> None:
        """What comes next begins at ``offset``: bytes before it are missing. ``lines``: how many ended in them, if known."""
        self.end = offset
        if lines is None:
            self.counted = False
        else:
            self.lines += lines

    def append(self, data: bytes, conceal: Callable[[bytes], bytes] | None = None) -> Written:
        """Write ``data``, which begins at ``end``. It counts after ``commit``. ``conceal`` must keep the number of lines."""
        offset, lines, key = self.end, self.lines, self._key
        packer = zstandard.ZstdCompressor(level=3, write_checksum=True)
        flags = (REDACTED if conceal is not None else 0) | (0 if self.counted else UNCOUNTED)
        buffer = bytearray()
        for piece in _cut(data):
            told = piece
            if conceal is not None:
                told = conceal(key + piece).split(b"\n", key.count(b"\n"))[-1]
                key = begun_key(key + piece)
            packed = packer.compress(told)
            ended = piece.count(b"\n")
            rest = _REST.pack(offset, lines, len(piece), ended, len(packed), flags)
            buffer += _MARK + zlib.crc32(rest).to_bytes(4, "little") + rest + packed
            offset, lines = offset + len(piece), lines + ended
        if self.part is None or self._size >= self._most:
            make_folder(self.folder)
            part = self.folder / f"{self.end:020d}-{self.lines:020d}{_ENDING}"
            file = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.part, self._size = part, 0
            sync_folder(self.folder)
        else:
            file = os.open(self.part, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            rest_ = memoryview(buffer)
            while rest_:
                rest_ = rest_[os.write(file, rest_) :]
        except OSError:
            self.rollback(Written(file, self._size, 0, 0, 0))
            raise
        return Written(file, self._size, offset, lines, len(buffer), key)

    def commit(self, written: Written) -> None:
        """Wait until it is on disk."""
        os.fdatasync(written.file)
        os.close(written.file)
        self._size = written.size + written.new
        self.end, self.lines, self._key = written.end, written.lines, written.key

    def rollback(self, written: Written) -> None:
        """Undo a write that failed."""
        with contextlib.suppress(OSError):
            os.ftruncate(written.file, written.size)
        os.close(written.file)

    def without(self, part: Path) -> None:
        """``part`` was deleted."""
        if self.part == part:
            self.part, self._size = None, 0


# --- reading ------------------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line of a source, without its line end."""

    line: int | None
    """None: it is not known how many lines came before"""
    offset: int | None
    text: bytes
    cut: int
    """bytes after ``LONGEST``"""
    torn: bool
    """its beginning or end is missing"""


class Gap(NamedTuple):
    """Bytes that are not stored."""

    offset: int | None
    """None: somewhere before"""
    end: int


def parts(folder: Path) -> list[Part]:
    """The parts of a source, in order."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            offset, _, before = entry.name.removesuffix(_ENDING).partition("-")
            if entry.name.endswith(_ENDING) and offset.isdecimal() and before.isdecimal():
                found.append(Part(folder / entry.name, int(offset), int(before)))
    return sorted(found, key=lambda part: part.offset)


def frames_of(path: Path) -> Iterator[Frame]:
    """The good frames of a part. The part may grow or be deleted meanwhile."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        number = file.fileno()
        size = os.fstat(number).st_size
        at: int | None = 0
        end = 0
        while at is not None:
            rest = _rest_of_head(os.pread(number, _HEAD.size, at))
            if rest is None or rest[0] < end:  # damaged; or what a sender wrote in the shape of a head
                at = _next_head(number, at + 1)
                continue
            offset, before, raw, lines, packed, flags = rest
            end = offset + raw
            if at + _HEAD.size + packed > size:
                return
            yield Frame(path, at + _HEAD.size, offset, before, raw, lines, packed, flags)
            at += _HEAD.size + packed


def _rest_of_head(head: bytes) -> tuple[int, ...] | None:
    """What the head of a frame says, if it is a whole one."""
    if len(head) < _HEAD.size or not head.startswith(_MARK):
        return None
    _, _, _, crc, *rest = _HEAD.unpack(head)
    return tuple(rest) if zlib.crc32(head[-_REST.size :]) == crc else None


def _next_head(number: int, at: int) -> int | None:
    """Where the next good head is, behind a damaged one: damage in one frame costs no other."""
    while len(data := os.pread(number, FRAME, at)) >= _HEAD.size:
        found = data.find(_MARK)
        if found < 0:
            at += len(data) - len(_MARK) + 1
        elif _rest_of_head(os.pread(number, _HEAD.size, at + found)) is not None:
            return at + found
        else:
            at += found + 1
    return None


def frames(folder: Path, *, offset: int = 0, line: int | None = None) -> Iterator[Frame]:
    """The frames of a source, from the one with byte ``offset``, or from the one in which line ``line`` begins or goes on."""
    known = parts(folder)
    if line is not None:
        first = max((number for number, part in enumerate(known) if part.before <= line - 2), default=0)
    else:
        first = max((number for number, part in enumerate(known) if part.offset <= offset), default=0)
    for part in known[first:]:
        for frame in frames_of(part.path):
            if line is not None and frame.counted and frame.before + frame.lines < line - 1:
                continue
            if line is None and frame.end <= offset:
                continue
            yield frame


def place(folder: Path, offset: int) -> tuple[Frame | None, int | None]:
    """(the frame with byte ``offset``, else the next one; the line of that byte, if known)."""
    frame = next(frames(folder, offset=offset), None)
    if frame is None or not frame.counted or frame.redacted or frame.offset > offset:
        return frame, None
    try:
        return frame, frame.before + frame.data().count(b"\n", 0, offset - frame.offset) + 1
    except ValueError:  # damaged
        return frame, None


def read(folder: Path, *, line: int | None = None, offset: int | None = None) -> Iterator[Line | Gap]:
    """Lines from a line (counted from 1) or from a byte on, and where bytes are missing. One of the two must be given.

    ``place`` turns a byte into its line, if that is known. Then the line is given from its beginning.
    """
    reading = _Reading(line, offset)
    for frame in frames(folder, offset=offset or 0, line=line):
        if line is not None and not frame.counted:  # nobody knows which lines these are, only where they are
            yield from reading.rest()
            yield from reading.missing_before(frame)
            return
        yield from reading.come_to(frame)
        if reading.passes_over(frame):
            continue
        try:
            data = frame.data()
        except FileNotFoundError:  # deleted meanwhile
            break
        except ValueError:
            reading.do_without(frame)
            continue
        yield from reading.lines(frame, data)
    yield from reading.rest()
    yield from reading.missing_at_the_end()


class _Reading:
    """The line that is being read, while frame after frame comes in."""

    def __init__(self, line: int | None, offset: int | None) -> None:
        self._first = line if line is not None else 1
        self._offset = offset
        self._expected: int | None = None
        """where the next frame begins if nothing is missing"""
        self._damaged_until = 0
        self._number: int | None = None
        self._begin(None)

    def _begin(self, start: int | None, *, torn: bool = False) -> None:
        self._start, self._torn = start, torn
        self._text, self._size = b"", 0

    def _add(self, data: bytes, at: int, end: int) -> None:
        if len(self._text) < LONGEST:
            self._text += data[at : min(end, at + LONGEST - len(self._text))]
        self._size += end - at

    def _told(self, start: int | None, *, torn: bool) -> Line:
        return Line(self._number, start, self._text, self._size - len(self._text), torn)

    def _is_wanted(self) -> bool:
        return self._number is None or self._number >= self._first

    def come_to(self, frame: Frame) -> Iterator[Line | Gap]:
        """If bytes are missing before ``frame``: end the begun line as torn, and begin again."""
        if frame.offset != self._expected:
            if self._size:
                yield self._told(self._start, torn=True)
            wanted = frame.offset > self._offset if self._offset is not None else frame.before >= self._first
            if self._expected is not None or wanted:
                yield Gap(self._expected if self._expected is not None else self._offset, frame.offset)
            self._number = frame.before + 1 if frame.counted else None
            # The first line may have begun before this frame, unless a certain line is wanted.
            self._begin(frame.offset, torn=frame.offset != 0)
        self._expected = frame.end

    def do_without(self, frame: Frame) -> None:
        """It is damaged: the next one finds a gap."""
        self._expected, self._damaged_until = frame.offset, frame.end

    def missing_at_the_end(self) -> Iterator[Gap]:
        """The gap that a damaged frame left, if none came behind it."""
        if self._expected is not None and self._damaged_until > self._expected:
            yield Gap(self._expected, self._damaged_until)

    def missing_before(self, frame: Frame) -> Iterator[Gap]:
        """The gap between the last frame and ``frame``, if any."""
        if self._expected is not None and frame.offset > self._expected:
            yield Gap(self._expected, frame.offset)

    def passes_over(self, frame: Frame) -> bool:
        """Whether ``frame`` need not be unpacked: it is inside a very long line, or of a line before those that are wanted."""
        if frame.lines or (self._size <= LONGEST and self._is_wanted()):
            return False
        self._size += frame.length
        return True

    def lines(self, frame: Frame, data: bytes) -> Iterator[Line]:
        """The lines that end in ``frame``."""
        if self._start is None:
            self._start = frame.offset
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            passed = self._offset is not None and not frame.redacted and frame.offset + end < self._offset
            if self._is_wanted() and not passed:
                self._add(data, at, end)
                yield self._told(None if frame.redacted else self._start, torn=self._torn)
            self._number = self._number + 1 if self._number is not None else None
            at = end + 1
            self._begin(None if frame.redacted else frame.offset + at)
        self._add(data, at, len(data))

    def rest(self) -> Iterator[Line]:
        """The last line, if it has no end yet."""
        if self._size and self._is_wanted():
            cut_off = self._expected is not None and self._damaged_until > self._expected
            yield self._told(self._start, torn=self._torn or cut_off)


def raw(folder: Path, offset: int = 0, until: int = 0) -> Iterator[tuple[Frame, bytes] | Gap]:
    """The bytes from ``offset`` on, frame by frame, with the gaps; also one at the end, if there should be ``until`` bytes."""
    expected = offset
    for frame in frames(folder, offset=offset):
        until = max(until, frame.end)
        try:
            data = frame.data()
        except FileNotFoundError:
            return
        except ValueError:  # damaged: it is missing
            continue
        if frame.offset > expected:
            yield Gap(expected, frame.offset)
        yield frame, data if frame.redacted else data[max(0, expected - frame.offset) :]
        expected = frame.end
    if expected < until:
        yield Gap(expected, until)


# --- files --------------------------------------------------------------------------------------------------------------------


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those above it. When this returns, their names are on disk too."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    sync_folder(folder.parent)


def _cut(data: bytes) -> Iterator[bytes]:
    """Cut into pieces of a frame each, between lines if possible."""
    at = 0
    while at < len(data):
        end = at + FRAME
        if end < len(data):
            end = data.rfind(b"\n", at, end) + 1 or end
        yield data[at:end]
        at = end


def _whole(frame: Frame) -> bool:
    try:
        frame.data()
    except (OSError, ValueError):
        return False
    return True
