"""Syslog over TCP: what stands on the wire becomes messages, however it is cut, and messages become lines with an owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.intake.protocols.identity import load
from service.intake.protocols.syslog import LONGEST, Frames, parsed

IDENTITIES = load()


def frames(data: bytes, *cuts: int) -> tuple[list[bytes], int]:
    stream, at, found = Frames(), 0, []
    for cut in sorted({min(cut, len(data)) for cut in cuts}):
        found += stream.feed(data[at:cut])
        at = cut
    found += stream.feed(data[at:])
    found += stream.end()
    return found, stream.too_long


def counted(message: bytes) -> bytes:
    return b"%d %s" % (len(message), message)


ONE, TWO = b"<14>1 - gpu-17 train 7 - - one\nand more", b"<14>1 - gpu-17 train 7 - - two"


@given(st.lists(st.integers(0, 200), max_size=8))
def test_counted_and_ended_messages_may_follow_each_other_however_they_are_cut(cuts: list[int]) -> None:
    data = counted(ONE) + TWO + b"\n" + counted(TWO) + b"<14>a\0<14>b"
    assert frames(data, *cuts) == ([ONE, TWO, TWO, b"<14>a", b"<14>b"], 0)


def test_a_line_that_begins_with_a_digit_is_a_line() -> None:
    assert frames(b"12345678901 is no count\n1x\n")[0] == [b"12345678901 is no count", b"1x"]


@given(st.lists(st.integers(0, 3 * LONGEST), max_size=6))
def test_what_is_too_long_costs_only_itself(cuts: list[int]) -> None:
    long = b"x" * (LONGEST + 10)
    found, too_long = frames(counted(long) + counted(ONE) + b"<14>" + long + b"\n" + counted(TWO), *cuts)
    assert (found[0], found[-1], too_long) == (ONE, TWO, 2)
    assert all(len(one) <= LONGEST + 4 for one in found)


def test_a_counted_message_that_is_cut_off_is_left_out() -> None:
    assert frames(counted(ONE)[:-1])[0] == []


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    for message in frames(data)[0]:
        parsed(message)


@pytest.mark.parametrize(
    ("data", "text", "attributes"),
    [
        (
            b"<165>1 2026-11-24T10:00:00Z gpu-17 train 7 ID - a line",
            b"a line",
            {"host": "gpu-17", "program": "train", "procid": "7", "msgid": "ID"},
        ),
        (b"<14>1 - - - - - - \xef\xbb\xbfa line", b"a line", {}),
        (
            b'<14>1 - - - - - [x@9 job="run7" rank="3"][y a="\\"q\\] \\\\"] a line',
            b"a line",
            {"job": "run7", "rank": "3", "a": '"q] \\'},
        ),
        (b'<14>1 - - - - - [x@9 job="run7"]', b"", {"job": "run7"}),
        (b'<14>1 - - - - - [x@9 job="run7', b'<14>1 - - - - - [x@9 job="run7', {}),
        (b"<14>Nov 24 10:00:00 gpu-17 train[7]: a line", b"a line", {"host": "gpu-17", "program": "train", "procid": "7"}),
        (b"<14>Nov  4 10:00:00 gpu-17 a line", b"a line", {"host": "gpu-17"}),
        (b"<14>run7: a line\x00", b"run7: a line", {"program": "run7"}),
        (b"<14>RuntimeError: CUDA error", b"RuntimeError: CUDA error", {"program": "RuntimeError"}),
        (b"no syslog \xff", b"no syslog \xff", {}),
    ],
)  # fmt: skip
def test_messages(data: bytes, text: bytes, attributes: dict[str, str]) -> None:
    message = parsed(data)
    assert (message.text, message.attributes, message.token) == (text, attributes, None)


def test_a_token_is_taken_from_our_own_element_and_never_becomes_an_attribute() -> None:
    message = parsed(b'<14>1 - - - - - [diagnose@0 job="run7" token="dgn_a"][other token="x"] a line')
    assert (message.token, message.attributes) == ("dgn_a", {"job": "run7", "token": "x"})


def test_a_message_says_whose_it_is() -> None:
    message = parsed(b'<14>1 - gpu-17 train 7 - [diagnose@0 slurm_job_id="4711" rank="3"] a line')
    found = IDENTITIES.identity(IDENTITIES.known(message.attributes))
    assert (found.job, found.rank, found.node, found.source) == ("4711", 3, "gpu-17", "gpu-17/train")
