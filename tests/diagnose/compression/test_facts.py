"""Lines that say who is who leave the kept ones: natively as in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.compression.facts import aside
from diagnose.matching.databases import core
from diagnose.matching.scan import KEPT

SEGMENTS = st.tuples(
    st.binary(max_size=4).filter(lambda text: not set(text) & set(b"\n\r\0")), st.integers(-2, 3), st.booleans()
)
"""(text, the rule that kept it, whether the next segment is in the same line)"""


def block_of(segments: list[tuple[bytes, int, bool]], first: int) -> tuple[bytes, bytes, bytes]:
    """(records, text, block) as a scan gives them."""
    kept, text, block, line = b"", b"", b"", first
    for words, rule, goes_on in segments:
        kept += KEPT.pack(line, len(text), len(words), rule, 0, len(block), len(block) + len(words))
        text += words + b"\n"
        block += words + (b"\r" if goes_on else b"\n")
        line += not goes_on
    return kept, text, block


@pytest.mark.skipif(core is None, reason="without the native core")
@given(st.lists(SEGMENTS, max_size=12), st.binary(min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 4))
def test_the_native_core_does_the_same(segments: list[tuple[bytes, int, bool]], facts: bytes, begun: int, room: int) -> None:
    given_ = *block_of(segments, first=1), bytes(one & 1 for one in facts), begun, room
    assert core.aside(*given_) == aside(*given_)


def test_whole_lines_of_such_rules_leave() -> None:
    kept, text, block = block_of([(b"who", 1, False), (b"bar", 1, True), (b"50%", 0, False), (b"why", 0, False)], first=7)
    for begun, expected in ((0, [b"who"]), (7, [])):
        records, left, words, dropped = aside(kept, text, block, b"\0\1", begun, 9)
        assert (words, dropped) == (expected, [(1, 1)] if expected else [])
        assert left == text[4 * len(expected) :]
        assert [left[at : at + size] for _, at, size, *_ in KEPT.iter_unpack(records)] == left.splitlines()


@pytest.mark.skipif(core is None, reason="without the native core")
def test_a_record_outside_of_its_text_is_refused() -> None:
    with pytest.raises(IndexError, match="outside of the text"):
        core.aside(KEPT.pack(1, 0, 9, -1, 0, 0, 9), b"text\n", b"text\n", b"\1", 0, 9)
