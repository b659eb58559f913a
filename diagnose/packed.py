"""Bytes that are packed with zstd, and unpacked within a bound: a damaged head may claim any size."""

from __future__ import annotations

import threading

import zstandard


class _Packers(threading.local):
    """Of each thread. A packer has tables of half a megabyte, which take longer to make than a report takes to be packed."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, bool], zstandard.ZstdCompressor] = {}


_packers = _Packers()


def packed(data: bytes, level: int = 3, *, checked: bool = False) -> bytes:
    """One frame. ``checked``: with a checksum, so that a bit that flipped is noticed when it is unpacked."""
    packer = _packers.known.get((level, checked))
    if packer is None:
        packer = _packers.known[level, checked] = zstandard.ZstdCompressor(level=level, write_checksum=checked)
    return packer.compress(data)


def unpacked(data: bytes, most: int) -> bytes:
    """One whole frame and nothing behind it, or ValueError. ``most``: the bytes that it may be."""
    try:
        if zstandard.frame_content_size(data) > most:
            raise ValueError(f"it says that it holds more than {most:,} bytes")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=most, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
