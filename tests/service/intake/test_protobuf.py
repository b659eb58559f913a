"""The lazy reader says what Google's own reader says, on messages made by Google's writer and on garbage."""

from __future__ import annotations

import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from service.errors import BadBody
from service.intake.protocols import otlp, protobuf
from service.intake.protocols.requests import Decoded


def any_value(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=any_value(v)) for k, v in value.items()]))
        case _:
            raise TypeError(value)


scalars = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(), st.binary(max_size=50)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4), max_leaves=8
)


@given(values)
def test_values_come_back(value: object) -> None:
    read = otlp._any(protobuf.Wire(), memoryview(any_value(value).SerializeToString()))
    assert value == read
    assert type(value) is type(read)


@given(st.binary(max_size=200))
def test_garbage_that_google_reads_is_read_and_other_is_refused(data: bytes) -> None:
    def read(message: memoryview) -> None:
        list(protobuf.Wire().fields(message))

    try:
        ExportLogsServiceResponse.FromString(data)
    except DecodeError:
        pass  # theirs checks the fields that the message has, ours the ones that are asked for
    else:
        if not any(tag & 7 in (3, 4) for tag in data):  # groups: dead since 2008, refused here
            read(memoryview(data))
            return
    try:
        read(memoryview(data))
    except BadBody:
        return


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x0a\x05abc", "longer than its message"),
        (b"\x09\x00", "longer than its message"),
        (b"\x80", "cut off"),
        (b"\xff" * 11, "more than ten bytes"),
        (b"\x00\x00", "no field 0"),
        (b"\x0b", "wire type 3"),
    ],
    ids=["string", "fixed64", "varint", "endless-varint", "field-0", "group"],
)
def test_what_is_wrong_is_said(data: bytes, what: str) -> None:
    with pytest.raises(BadBody, match=what):
        list(protobuf.Wire().fields(memoryview(data)))


def test_doubles_are_bits() -> None:
    assert protobuf.double(struct.unpack("<Q", struct.pack("<d", 1.5))[0]) == 1.5


def test_the_answer_is_what_google_reads() -> None:
    decoded = Decoded([], lines=9, rejected=300, why="no attribute names the job")
    answer = ExportLogsServiceResponse.FromString(otlp.answer(otlp.PROTOBUF, decoded))
    assert (
        answer.partial_success.rejected_log_records,
        answer.partial_success.error_message,
    ) == (300, "no attribute names the job")
    assert otlp.answer(otlp.PROTOBUF, Decoded([], lines=9)) == b""
