"""Bytes that are packed with zstd, and unpacked within a bound: a damaged head may claim any size."""

from __future__ import annotations

import zstandard


def packed(data: bytes, level: int = 3, *, checked: bool = False) -> bytes:
    """One frame. ``checked``: with a checksum, so that a bit that flipped is noticed when it is unpacked."""
    return zstandard.ZstdCompressor(level=level, write_checksum=checked).compress(data)


def unpacked(data: bytes, most: int) -> bytes:
    """One whole frame and nothing behind it, or ValueError. ``most``: the bytes that it may be."""
    try:
        if zstandard.frame_content_size(data) > most:
            raise ValueError(f"it says that it holds more than {most:,} bytes")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=most, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
