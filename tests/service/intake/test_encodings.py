"""Bodies unpacked: the same content whatever the pieces were, bounded in memory, clear about what is wrong."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadBody, TooLarge, Unsupported
from service.intake.protocols.encodings import Bounded

PACK = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "identity": lambda data: data,
}


def unpack(encoding: str, pieces: list[bytes], most: int = 1 << 30) -> bytes:
    unpacker = Bounded(encoding, most)
    out = b"".join(piece for data in pieces for piece in unpacker.feed(data))
    unpacker.end()
    return out


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


@given(
    st.sampled_from(sorted(PACK)), st.lists(st.binary(max_size=3000), max_size=4), st.lists(st.integers(1, 500), max_size=20)
)
def test_members_in_any_pieces(encoding: str, members: list[bytes], sizes: list[int]) -> None:
    members = members if encoding in ("gzip", "zstd") else members[:1]
    packed = b"".join(PACK[encoding](member) for member in members)
    assert b"".join(members) == unpack(encoding, cut(packed, sizes))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_cut_off(encoding: str) -> None:
    packed = PACK[encoding](b"step 1 loss 2.0\n" * 1000)
    with pytest.raises(BadBody, match="ends early"):
        unpack(encoding, [packed[:-5]])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_garbage(encoding: str) -> None:
    with pytest.raises(BadBody, match="corrupt"):
        unpack(encoding, [b"this is no compressed data at all"])


def test_padding_after_the_last_member_is_no_loss() -> None:
    assert unpack("gzip", [gzip.compress(b"x") + b"\0" * 100, b"\0" * 70_000]) == b"x"


def test_an_encoding_that_nobody_speaks() -> None:
    with pytest.raises(Unsupported, match="use gzip, zstd"):
        unpack("br", [b""])


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_goes_off_in_a_small_room(encoding: str) -> None:
    bomb = PACK[encoding](b"\0" * (128 << 20))
    assert len(bomb) < 150_000
    unpacker = Bounded(encoding, 64 << 20)
    seen = 0
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="67,108,864"):  # noqa: PT012 - what came before counts
            for piece in unpacker.feed(bomb):
                seen += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen <= 64 << 20
    assert peak < 20 << 20


def test_a_million_empty_members() -> None:
    with pytest.raises(BadBody, match="members"):
        unpack("gzip", [gzip.compress(b"") * 30_000])


def test_a_window_that_a_stranger_orders() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=3)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = frame.compress(b"abc" * 1000) + frame.flush()
    with pytest.raises(BadBody, match="corrupt"):
        unpack("zstd", [packed])
