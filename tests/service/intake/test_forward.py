"""Fluentd's forward protocol: all its modes become records, and what no message is, is refused."""

from __future__ import annotations

import gzip
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadBody, Refused, TooLarge
from service.intake.protocols.forward import LONGEST, Chunk, Messages, answer

A, B = {"message": "a", "job": "run7"}, {"message": "b", "job": "run7"}
TIME = msgpack.ExtType(0, b"\x00\x00\x00\x01\x00\x00\x00\x00")
LARGE = gzip.compress(msgpack.packb([TIME, {"message": "x" * (7 << 20)}]) * 10)
MANY = gzip.compress(bytes(2 << 20))
"""each byte is an event that is no record"""
PACKED = msgpack.packb([TIME, A]) + msgpack.packb([1, B])


def read(*messages: Any, cuts: tuple[int, ...] = ()) -> list[Chunk]:
    data = b"".join(map(msgpack.packb, messages))
    stream, at, found = Messages(), 0, []
    for cut in (*sorted({min(cut, len(data)) for cut in cuts}), len(data)):
        found += stream.feed(data[at:cut])
        at = cut
    return found


@pytest.mark.parametrize(
    "message",
    [
        ["train", [[TIME, A], [1, B]], {"chunk": "c1"}],
        ["train", PACKED, {"chunk": "c1", "size": 2}],
        ["train", gzip.compress(PACKED), {"chunk": "c1", "compressed": "gzip"}],
        ["train", gzip.compress(PACKED[:40]) + gzip.compress(PACKED[40:]), {"chunk": "c1", "compressed": "gzip"}],
    ],
    ids=["forward", "packed", "gzip", "gzip-members"],
)
@given(cuts=st.lists(st.integers(0, 120), max_size=4))
def test_all_modes_are_the_same_records(message: Any, cuts: list[int]) -> None:
    (chunk,) = read(message, cuts=tuple(cuts))
    assert chunk == Chunk([{"tag": "train", **A}, {"tag": "train", **B}], "c1")
    assert msgpack.unpackb(answer(chunk)) == {"ack": "c1"}


def test_one_event_and_a_heartbeat() -> None:
    assert read(None, ["train", 1, A], ["train", TIME, B, {"chunk": "c"}]) == [
        Chunk([{"tag": "train", **A}], None),
        Chunk([{"tag": "train", **B}], "c"),
    ]


def test_bytes_and_odd_keys_become_text() -> None:
    (chunk,) = read(["train", 1, {"log": b"caf\xe9", 7: {"a": [b"x", None]}}])
    assert chunk.records == [{"tag": "train", "log": "caf\udce9", "7": {"a": ["x", None]}}]


def test_what_is_no_record_is_counted() -> None:
    (chunk,) = read(["train", [[1, A], [2], "x", [3, 4]]])
    assert (chunk.records, chunk.bad) == ([{"tag": "train", **A}], 3)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1\r\n", BadBody),
        (b"\xc1", BadBody),
        (msgpack.packb({"a": 1}), BadBody),
        (msgpack.packb([1, 2]), BadBody),
        (b"\x91" * 5000, BadBody),
        (b"\x82\x00\x00\x80\x00", BadBody),
        (msgpack.packb(["t", b"x" * LONGEST]), TooLarge),
        (msgpack.packb(["t", LARGE, {"compressed": "gzip"}]), TooLarge),
        (msgpack.packb(["t", MANY, {"compressed": "gzip"}]), TooLarge),
        (msgpack.packb(["t", b"no gzip", {"compressed": "gzip"}]), BadBody),
    ],
    ids=["http", "never-used", "map", "no-tag", "deep", "map-as-key", "too-long", "large", "many", "no-gzip"],
)
def test_hostile_messages_are_refused(data: bytes, error: type[Refused]) -> None:
    with pytest.raises(error):
        list(Messages().feed(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        list(Messages().feed(data))
    except (BadBody, TooLarge):
        pass
