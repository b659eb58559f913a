"""Chunks -> blocks: whatever the cuts, the same segments."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.reading.lines import LONGEST, Blocks, clean
from tests.support.strategies import cuts, logs, segments


def blocks_of(chunks: list[bytes]) -> list[tuple[bytes, int]]:
    """Segments with what was cut off each, as an engine would see them."""
    blocks = Blocks()
    found = []
    for block in [block for chunk in chunks for block in blocks.feed(chunk)] + list(blocks.close()):
        cut = block.cut
        for piece in re.findall(rb"[^\n\r\0]*[\n\r\0]", bytes(block.data)):
            text, end = piece[:-1], piece[-1:]
            found.append((text[:LONGEST] + end, max(0, len(text) - LONGEST) + cut))
            cut = 0
    return found


@given(logs.flatmap(lambda data: st.tuples(st.just(data), cuts(data))))
def test_any_chunking_gives_what_one_chunk_gives(pair: tuple[bytes, list[bytes]]) -> None:
    data, chunks = pair
    assert blocks_of([data]) == blocks_of(chunks)


@given(st.integers(LONGEST - 3, LONGEST * 2 + 5), st.sampled_from([b"\n", b"\r\n", b"\r", b"\0", b""]), st.data())
def test_a_long_line_is_cut_alike_whatever_the_chunks(length: int, end: bytes, data: st.DataObject) -> None:
    log = b"before\n" + b"x" * length + end + b"after\n"
    assert blocks_of([log]) == blocks_of(data.draw(cuts(log)))


def test_bytes_beyond_the_longest_are_counted_not_held() -> None:
    blocks = Blocks()
    for _ in range(100):
        assert list(blocks.feed(b"y" * 50_000)) == []
    (block,) = blocks.feed(b"\n")
    assert len(block.data) == LONGEST + 2
    assert block.cut == 100 * 50_000 - LONGEST - 1


def test_a_last_line_without_end_is_a_line() -> None:
    assert blocks_of([b"one\ntwo"]) == [(b"one\n", 0), (b"two\n", 0)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x1b[31mred\x1b[0m", b"red"),
        (b"\x1b[1;38;5;196mx\x1b[K", b"x"),
        (b"\x1b]0;title\x07text", b"text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1b]hides what follows? no", b"hides what follows? no"),
        (b"end\x1b", b"end"),
        (b"\x1b[31", b"31"),
        (b"\x1bM up", b" up"),
        (b"no escape", b"no escape"),
    ],
)
def test_escape_sequences_go_and_text_stays(raw: bytes, expected: bytes) -> None:
    assert clean(raw) == expected


@given(segments)
def test_clean_leaves_no_escape_and_only_removes(raw: bytes) -> None:
    text = clean(raw)
    assert b"\x1b" not in text
    rest = iter(raw)
    assert all(byte in rest for byte in text)
