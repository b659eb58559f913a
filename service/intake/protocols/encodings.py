"""Packed bodies -> content, as they come: gzip, deflate, zstd. Memory holds one piece at a time, and the content is bounded.

A small body that unpacks to very much meets that bound (413). One that is cut off or damaged gets 400.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import zstandard

from service.errors import BadBody, TooLarge, Unsupported

PIECE = 256 << 10
_ZSTD_WINDOW = 8 << 20
"""RFC 8878 asks decoders for 8 MiB; more would let a stranger order memory"""
_STEP = 64 << 10
_MOST_MEMBERS = 20_000


class Unpacker(Protocol):
    """Takes packed bytes and gives their content. ``end`` raises if something is missing."""

    def feed(self, data: bytes) -> Iterator[bytes]: ...

    def end(self) -> None: ...


class _Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        if data:
            yield data

    def end(self) -> None:
        return


class _Zlib:
    """Members one after the other, as gzip allows."""

    def __init__(self, name: str, wbits: int) -> None:
        self._name = name
        self._wbits = wbits
        self._stream: Any = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _STEP):
            yield from self._step(data[start : start + _STEP])

    def _step(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                if self._members and not data.strip(b"\0"):
                    return  # padding after the last member
                self._members = _counted(self._members, self._name)
                self._stream = zlib.decompressobj(wbits=self._wbits)
            try:
                piece = self._stream.decompress(data, PIECE)
            except zlib.error as error:
                raise _garbage(self._name, error) from None
            if piece:
                yield piece
            if self._stream.eof:
                data, self._stream = self._stream.unused_data, None
            else:
                data = self._stream.unconsumed_tail

    def end(self) -> None:
        if self._stream is not None:
            raise _cut_off(self._name)


class _Zstd:
    """Frames one after the other, in steps so small that none can unpack to more than 8 MiB: four bytes can mean 128 KiB."""

    _STEP = 256

    def __init__(self) -> None:
        self._stream: Any = None
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), self._STEP):
            yield from self._step(data[start : start + self._STEP])

    def _step(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                self._frames = _counted(self._frames, "zstd")
                self._stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            try:
                content = self._stream.decompress(data)
            except zstandard.ZstdError as error:
                raise _garbage("zstd", error) from None
            for start in range(0, len(content), PIECE):
                yield content[start : start + PIECE]
            if not self._stream.eof:
                return
            data, self._stream = self._stream.unused_data, None

    def end(self) -> None:
        if self._stream is not None:
            raise _cut_off("zstd")


def _counted(so_far: int, name: str) -> int:
    """Limits the members: each costs a decoder, and millions of empty ones are an attack on the processor."""
    if so_far >= _MOST_MEMBERS:
        raise BadBody(f"more than {_MOST_MEMBERS:,} {name} members in one body", remedy="compress more lines at once")
    return so_far + 1


def _garbage(name: str, error: Exception) -> BadBody:
    return BadBody(f"the {name} data is corrupt ({error})", remedy="nothing after this point was stored; send it again")


def _cut_off(name: str) -> BadBody:
    return BadBody(f"the {name} data ends early", remedy="what came before was read; send the rest again")


def unpacker(content_encoding: str) -> Unpacker:
    """The unpacker for a Content-Encoding header."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Zlib("gzip", 31)
        case "deflate":
            return _Zlib("deflate", 15)
        case "zstd":
            return _Zstd()
        case other:
            raise Unsupported(
                f"bodies cannot be decompressed from {other[:40]!r}",
                where="Content-Encoding",
                remedy="use gzip, zstd, deflate or none",
            )


class Bounded:
    """An unpacker that stops at ``most`` bytes of content."""

    def __init__(self, content_encoding: str, most: int) -> None:
        self._inner = unpacker(content_encoding)
        self._most = most
        self.size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in self._inner.feed(data):
            self.size += len(piece)
            if self.size > self._most:
                raise TooLarge(f"the body holds more than {self._most:,} bytes", remedy="send it in smaller bodies")
            yield piece

    def end(self) -> None:
        self._inner.end()
