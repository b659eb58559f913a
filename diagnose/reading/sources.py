"""Files, folders, archives, standard input and growing files -> chunks of bytes.

A *source* is one stream of lines with a name. A job has one or many. If a source cannot be read to its end, ``problem`` says
why, and what could be read still counts.
"""

from __future__ import annotations

import contextlib
import glob
import lzma
import os
import shlex
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from diagnose.errors import SourceError, nearest_path
from diagnose.reading.binary import LOOK, no_log
from diagnose.reading.dumps import documents
from diagnose.reading.prefixes import Origin, origin_of_path

CHUNK = 1 << 20
PIECE = 1 << 21
"""bytes of a plain file that are read at once"""
_FED = 1 << 14
"""compressed bytes that are unpacked at once: where they are corrupt, all of them are lost"""
_NEAR = 1 << 12
"""bytes at the end of a piece, where the end of a line is looked for"""
_NOT_LOGS = frozenset(
    ".a .bin .ckpt .db .distcp .gguf .h5 .idx .jpeg .jpg .mp4 .npy .npz .o .onnx .parquet .pdf .pickle .pkl .png .pt .pth .pyc"
    " .safetensors .so .sqlite .sqlite3 .tar .tgz .whl .zip .nsys-rep .qdrep .tfevents".split()
)
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}


class Restart:
    """In the chunks of a followed file: the file began again (rotated or truncated). Line numbers restart at 1."""


RESTART = Restart()


@dataclass(slots=True)
class Source:
    """One stream of lines."""

    name: str
    path: Path | None
    """None for standard input"""
    problem: str | None = None
    """why it could not be read to its end"""
    bytes_read: int = 0
    """of the file as it is on disk, for a progress bar"""
    told: Origin | None = None
    """who wrote it, according to its sender"""
    room: Callable[[], memoryview] | None = None
    """where the next piece of a plain file goes; None: into memory of its own. A piece holds until ``room`` is asked again"""

    @property
    def origin(self) -> Origin:
        """Who wrote it, according to its sender, else to its name."""
        named = origin_of_path(self.name)
        if self.told is None:
            return named
        rank = self.told.rank if self.told.rank is not None else named.rank
        return Origin(rank=rank, node=self.told.node or named.node)

    @property
    def size(self) -> int | None:
        with contextlib.suppress(OSError):
            if self.path is not None:
                return self.path.stat().st_size
        return None

    def chunks(self) -> Iterator[bytes]:
        """The content, decompressed, or the lines that stand for a dump. Nothing if its beginning shows that it is no log."""
        return map(bytes, self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The same; those of a plain file lie in ``room``, if there is one."""
        content = self._content()
        first = bytes(next(content, b""))
        if not first:
            return
        if (kind := documents.recognised(first[:LOOK])) is not None:
            yield from self._document(kind, first, content)
            return
        if (found := no_log(first[:LOOK], first[-LOOK:])) is not None:
            self.problem = f"this is not a log, but {found.what}"
            return
        yield first
        yield from content

    def _document(
        self, kind: documents.Kind, first: bytes, content: Iterator[bytes | memoryview]
    ) -> Iterator[bytes | memoryview]:
        """The lines that the log keeps of a file that is one dump. If it is none after all, its own lines."""
        data = bytearray(first)
        for chunk in content:
            data += chunk
            if len(data) > documents.LARGEST:
                break
        try:
            yield "".join(f"{line}\n" for line in documents.lines(kind, bytes(data), self.name)).encode("utf-8", "replace")
        except documents.NoDump as error:
            if kind == "recorder-pickle":
                self.problem = f"this dump of a flight recorder cannot be read: {error}"
                return
            yield bytes(data)
            yield from content

    def ends(self) -> tuple[bytes, bytes]:
        """(beginning, end), decompressed. The end is empty if the whole file had to be read for it."""
        if self.path is None or not self.path.is_file():
            return b"", b""  # a pipe can be read only once
        with contextlib.suppress(OSError), open(self.path, "rb", buffering=0) as file:
            head = file.read(LOOK)
            if not head.startswith(tuple(_MAGIC)):
                file.seek(max(0, os.fstat(file.fileno()).st_size - LOOK))
                return head, file.read(LOOK)
        return bytes(next(replace(self)._content(), b""))[:LOOK], b""

    def _content(self) -> Iterator[bytes | memoryview]:
        try:
            if self.path is None:
                yield from _standard_input()
                return
            with open(self.path, "rb", buffering=0) as file:
                head = file.read(6)
                file.seek(0)
                kind = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
                yield from _DECODERS[kind](self, file)
        except OSError as error:
            self.problem = f"cannot be read: {error.strerror or error}"

    def read(self, file: BinaryIO, size: int = CHUNK) -> bytes:
        data = file.read(size)
        self.bytes_read += len(data)
        return data

    def read_into(self, file: BinaryIO, room: memoryview) -> memoryview:
        size = file.readinto(room)  # type: ignore[attr-defined]
        self.bytes_read += size
        return room[:size]


def _plain(source: Source, file: BinaryIO) -> Iterator[bytes | memoryview]:
    """Pieces that end with a line, where one ends near: a line that two pieces share costs more than to look for its end."""
    while True:
        size = _whole_lines(file)
        data = source.read(file, size) if source.room is None else source.read_into(file, source.room()[:size])
        if not data:
            return
        yield data


def _whole_lines(file: BinaryIO) -> int:
    """How many of the next bytes are whole lines, and about a piece."""
    begin = file.tell()
    file.seek(begin + PIECE - _NEAR)
    last = file.read(_NEAR)
    file.seek(begin)
    end = last.rfind(b"\n") if len(last) == _NEAR else -1
    return PIECE - _NEAR + end + 1 if end >= 0 else PIECE


def _gzip(source: Source, file: BinaryIO) -> Iterator[bytes]:
    def decoder() -> Any:
        return zlib.decompressobj(wbits=31)

    yield from _decoded(source, file, decoder, zlib.error, "gzip", lambda d: d.unconsumed_tail)


def _xz(source: Source, file: BinaryIO) -> Iterator[bytes]:
    yield from _decoded(source, file, lzma.LZMADecompressor, lzma.LZMAError, "xz", lambda d: b"")


def _decoded(
    source: Source,
    file: BinaryIO,
    decoder: Callable[[], Any],
    error_type: type[Exception],
    name: str,
    left_over: Callable[[Any], bytes],
) -> Iterator[bytes]:
    """Decompress members one after the other. Output comes in pieces, so a small file that unpacks to much stays harmless."""
    current = decoder()
    data = source.read(file, _FED)
    began = False
    while True:
        try:
            piece = current.decompress(data, CHUNK)
        except error_type as error:
            # Padding after the last member is no loss; anything else is.
            if began or data.strip(b"\0"):
                source.problem = f"the {name} data is corrupt after {source.bytes_read:,} bytes ({error}): what follows is lost"
            return
        began = True
        if piece:
            yield piece
        if current.eof:
            data = current.unused_data or source.read(file, _FED)
            if not data:
                return
            current, began = decoder(), False
            continue
        data = left_over(current)
        if not data and getattr(current, "needs_input", True):
            data = source.read(file, _FED)
            if not data and not piece:
                source.problem = f"the {name} data ends early: the file was cut off"
                return


def _zstd(source: Source, file: BinaryIO) -> Iterator[bytes]:
    import zstandard

    total = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False) as reader:
            while piece := reader.read(CHUNK):
                total += len(piece)
                source.bytes_read = file.tell()
                yield piece
        file.seek(0)
        promised = zstandard.frame_content_size(file.read(18))
        if promised > total:
            source.problem = "the zstd data ends early: the file was cut off"
    except zstandard.ZstdError as error:
        source.problem = f"the zstd data is corrupt after {file.tell():,} bytes ({error}): what follows is lost"


_DECODERS: dict[str | None, Callable[[Source, BinaryIO], Iterator[bytes | memoryview]]] = {
    None: _plain,
    "gzip": _gzip,
    "xz": _xz,
    "zstd": _zstd,
}


def _standard_input() -> Iterator[bytes]:
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import fcntl

        # A pipe hands over 64 KiB at a time unless it is asked for more.
        fcntl.fcntl(sys.stdin.fileno(), fcntl.F_SETPIPE_SZ, CHUNK)
    descriptor = sys.stdin.fileno()
    while data := os.read(descriptor, CHUNK):
        yield data


class EmptyLog(SourceError):
    """A log without a line. Alone it cannot be reported on, but beside other logs of its job it is no loss."""


@dataclass(slots=True)
class Found:
    """The sources of one path, and the problems with others."""

    sources: list[Source] = field(default_factory=list)
    problems: list[SourceError] = field(default_factory=list)
    passed_over: list[SourceError] = field(default_factory=list)
    """files in the folder that are not logs"""


def find(paths: Sequence[str]) -> Found:
    """The logs that ``paths`` name: files, folders (all logs in them), patterns, or ``-``."""
    found = Found()
    for path in paths:
        try:
            found.sources += _find(path, found.passed_over)
        except SourceError as error:
            found.problems.append(error)
    return found


def _find(path: str, passed_over: list[SourceError]) -> list[Source]:
    if path == "-":
        return [Source("<stdin>", None)]
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
        if matches:
            return [source for match in matches for source in _find(match, passed_over)]
        raise SourceError("no such file or folder", where=path, remedy=_meant(path)) from None
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {_reason(error)}", where=path, remedy="check its permissions") from None
    if stat.S_ISDIR(mode):
        return _folder(path, passed_over)
    if not os.access(path, os.R_OK):
        raise SourceError("cannot be read: permission denied", where=path, remedy="check its permissions")
    if stat.S_ISREG(mode) and os.stat(path).st_size == 0:
        raise EmptyLog("the file is empty", where=path, remedy="nothing was logged, or the job writes elsewhere")
    source = Source(path, Path(path))
    if stat.S_ISREG(mode) and (problem := _no_log(source)) is not None:
        raise problem
    return [source]


def _no_log(source: Source) -> SourceError | None:
    ends = source.ends()
    found = no_log(*ends)
    if found is None or documents.recognised(ends[0]) is not None:
        return None
    remedy = found.remedy.replace("FILE", shlex.quote(source.name))
    return SourceError(f"this is not a log, but {found.what}", where=source.name, remedy=remedy)


def _meant(path: str) -> str:
    """A remedy for a path that does not exist."""
    near = nearest_path(path)
    return f"did you mean {near}?" if near is not None else "check the path, or give - for standard input"


def _folder(path: str, passed_over: list[SourceError]) -> list[Source]:
    try:
        os.listdir(path)
    except OSError as error:
        raise SourceError(f"cannot be read: {_reason(error)}", where=path, remedy="check its permissions") from None
    names = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            full = os.path.join(folder, name)
            if (
                not name.startswith(".")
                and os.path.isfile(full)
                and os.path.getsize(full)
                and (_is_log(name) or _is_dump(full))
            ):
                names.append(full)
    if not names:
        raise SourceError("the folder has no logs", where=path, remedy="give the folder that has the .log, .out or .err files")
    sources = [Source(name, Path(name)) for name in sorted(names, key=_natural)]
    problems = [_no_log(source) for source in sources]
    logs = [source for source, problem in zip(sources, problems, strict=True) if problem is None]
    others = [problem for problem in problems if problem is not None]
    if not logs:
        raise others[0]
    passed_over += others
    return logs


def _is_log(name: str) -> bool:
    return os.path.splitext(name)[1].lower() not in _NOT_LOGS and ".tfevents." not in name


def _is_dump(path: str) -> bool:
    """Whether a file with a name for data holds the dump of a flight recorder."""
    if not path.lower().endswith((".pkl", ".pickle")):
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return documents.recognised(file.read(LOOK)) is not None
    return False


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts rank2 before rank10."""
    parts: list[tuple[int, int, str]] = []
    word = ""
    for c in name + "\0":
        if word and (c.isdecimal() != word[-1].isdecimal() or c == "\0"):
            parts.append((0, int(word), "") if word.isdecimal() and word.isascii() else (1, 0, word))
            word = ""
        word += c
    return parts


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


class Follower:
    """A growing file, read as it grows. ``poll`` returns what is new and never waits."""

    def __init__(self, source: Source) -> None:
        assert source.path is not None
        self.source = source
        self._path = source.path
        self._file: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None

    def poll(self) -> Iterator[bytes | Restart]:
        """New bytes. A Restart comes before those of a file that replaced the old one or was cut back."""
        if self._file is None and not self._open():
            return
        yield from self._rest()
        try:
            now = os.stat(self._path)
        except OSError:
            return  # moved away; its successor has not come yet
        assert self._file is not None
        if (now.st_dev, now.st_ino) != self._identity:
            yield from self._rest()  # what was written between the last read and the move
            self._file.close()
            self._file = None
            if self._open():
                yield RESTART
                yield from self._rest()
        elif now.st_size < self._file.tell():
            self._file.seek(0)
            yield RESTART
            yield from self._rest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 - open as long as it is followed
        except OSError as error:
            self.source.problem = f"cannot be read: {error.strerror}"
            return False
        status = os.fstat(self._file.fileno())
        self._identity = (status.st_dev, status.st_ino)
        self.source.problem = None
        return True

    def _rest(self) -> Iterator[bytes]:
        assert self._file is not None
        while data := self.source.read(self._file):
            yield data
