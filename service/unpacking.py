"""Bodies that were compressed by their sender -> bytes, in pieces of bounded size, however much they unpack to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from service.errors import BadBody, TooLarge, Unsupported

PIECE = 1 << 20


class Unpacker:
    """Fed with what arrives; ``feed`` yields what it unpacks to, ``finish`` objects to what was cut off."""

    def __init__(self, encoding: str | None, limit: int) -> None:
        self.encoding = (encoding or "identity").strip().lower()
        self._limit = limit
        self._out = 0
        self._decoder: Any = self._new()
        self._began = False
        self._after = False
        """a member has ended, and another may follow"""

    def _new(self) -> Any:
        if self.encoding in ("identity", ""):
            return None
        if self.encoding in ("gzip", "x-gzip"):
            return zlib.decompressobj(wbits=31)
        if self.encoding == "deflate":
            return zlib.decompressobj(wbits=15)
        if self.encoding == "zstd":
            return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        raise Unsupported(
            f"the encoding {self.encoding!r} is not spoken here", remedy="send it plain, or with gzip, deflate or zstd"
        )

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` unpacks to."""
        if self._decoder is None:
            if data:
                yield data
            return
        try:
            while data:
                if self._after:
                    self._decoder, self._after, self._began = self._new(), False, False
                self._began = True
                if self.encoding == "zstd":
                    # It takes no bound for its output: small inputs keep one step's output in bounds.
                    some, data = data[:1024], data[1024:]
                    piece = self._decoder.decompress(some)
                    if self._decoder.eof:
                        data = self._decoder.unused_data + data
                        self._after = True
                else:
                    piece = self._decoder.decompress(data, PIECE)
                    data = self._decoder.unconsumed_tail
                    if self._decoder.eof:
                        data = self._decoder.unused_data
                        self._after = True
                if piece:
                    self._out += len(piece)
                    if self._out > self._limit:
                        raise TooLarge(
                            f"the body unpacks to more than {self._limit:,} bytes", remedy="send it in several requests"
                        )
                    yield piece
        except (zlib.error, zstandard.ZstdError) as error:
            raise BadBody(f"the {self.encoding} data is damaged: {error}", remedy="send it again, whole") from None

    def finish(self) -> None:
        """The body has ended."""
        if self._decoder is not None and self._began and not self._after:
            raise BadBody(f"the {self.encoding} data was cut off", remedy="send the rest from the offset that is given here")


def unpacked(data: bytes, encoding: str | None, limit: int) -> bytes:
    """A whole body at once."""
    unpacker = Unpacker(encoding, limit)
    result = b"".join(unpacker.feed(data))
    unpacker.finish()
    return result
