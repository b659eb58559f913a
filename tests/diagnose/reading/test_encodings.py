"""UTF-16, UTF-32 and CRLF come out as UTF-8 with LF, whatever the cuts."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.reading.encodings import Decoder, LineEnds, encoding_of
from tests.support.strategies import cuts

TEXT = "step 1 | loss 2.0\nTraceback (most recent call last):\n进度 ▇▇ 50 %\nRuntimeError: CUDA error 🔥\n"
ENCODED = {
    "UTF-16 LE with a mark": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "UTF-16 BE with a mark": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "UTF-32 LE with a mark": codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
    "UTF-32 BE with a mark": codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
    "UTF-16 LE": TEXT.encode("utf-16-le"),
    "UTF-16 BE": TEXT.encode("utf-16-be"),
    "UTF-32 LE": TEXT.encode("utf-32-le"),
    "UTF-32 BE": TEXT.encode("utf-32-be"),
    "UTF-8 with a mark": codecs.BOM_UTF8 + TEXT.encode(),
    "UTF-8": TEXT.encode(),
}


def decoded(chunks: list[bytes]) -> bytes:
    decoder = Decoder()
    out = []
    for chunk in chunks:
        out.append(decoder.feed(chunk))
        again = Decoder()
        again.state = decoder.state
        decoder = again
    return b"".join(out) + decoder.feed(b"", last=True)


@pytest.mark.parametrize("name", ENCODED)
@given(data=st.data())
def test_text_comes_out_as_utf8_whatever_the_cuts(name: str, data: st.DataObject) -> None:
    assert decoded(data.draw(cuts(ENCODED[name]))) == TEXT.encode()


@pytest.mark.parametrize("text", ["[进度] 一二三四五六七八九十 step 3 of 9 is done\n" * 4, "x\n", "ab\n"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_zeros_tell_where_a_mark_is_missing(encoding: str, text: str) -> None:
    assert encoding_of(text.encode(encoding)[:256])[0] == encoding


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        b"\0\0\0\0x\ny\0\0\n",
        b"\0" * 300,
        b"plain text\n",
        b"\xff\xd8\xff\xe0 no",
        b"a\0b\0\0\0\0c d e f",
        b"\xfea",
    ],
    ids=["nothing", "one letter", "a truncated file", "zeros", "plain", "no mark", "zeros here and there", "half a mark"],
)
def test_what_is_no_unicode_passes_untouched(data: bytes) -> None:
    assert decoded([data]) == data
    assert decoded([bytes([byte]) for byte in data]) == data


def unended(chunks: list[bytes]) -> bytes:
    ends = LineEnds()
    out = []
    for chunk in chunks:
        out.append(ends.feed(chunk))
        again = LineEnds()
        again.state = ends.state
        ends = again
    return b"".join(out) + ends.rest()


@given(st.data())
def test_crlf_goes_where_the_first_line_has_it(data: st.DataObject) -> None:
    log = b"one\r\n\r\n 5%\r 7%\rtwo\r\nthree\r"
    assert unended(data.draw(cuts(log))) == b"one\n\n 5%\r 7%\rtwo\nthree\r"


@given(st.data())
def test_frames_of_a_progress_bar_stay(data: st.DataObject) -> None:
    log = b"one\n 5%\r 7%\r\ntwo\r\n\r"
    assert unended(data.draw(cuts(log))) == log
