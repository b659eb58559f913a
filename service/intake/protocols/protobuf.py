"""The wire format of Protocol Buffers, read lazily: one field at a time, and nothing is built that nobody asked for.

A body of many empty messages must not cost memory. So no message classes are used: theirs take a hundred bytes and more for two
bytes of body. ``tests/service/intake/test_protobuf.py`` compares this with Google's own reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from service.errors import BadBody, TooLarge

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Value = int | memoryview
Field = tuple[int, int, Value]
"""number, wire type, value; integers are unsigned, as on the wire"""


class Wire:
    """Reads the messages of one body. ``most`` limits their fields, because one may have two bytes and takes a microsecond."""

    def __init__(self, most: int = 2_000_000) -> None:
        self._left = most

    def fields(self, data: memoryview) -> Iterator[Field]:
        """The fields of one message, in order. A nested message is a view on its bytes."""
        at, end = 0, len(data)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise TooLarge("the body has too many fields", remedy="send fewer records at once")
            tag, at = _varint(data, at, end)
            number, wire = tag >> 3, tag & 7
            if number == 0 or number >= 1 << 29:
                raise _garbage(f"there is no field {number}")
            if wire == BYTES:
                size, at = _varint(data, at, end)
                if size > end - at:
                    raise _garbage("a field is longer than its message")
                yield number, wire, data[at : at + size]
                at += size
            elif wire == VARINT:
                value, at = _varint(data, at, end)
                yield number, wire, value
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
                if size > end - at:
                    raise _garbage("a field is longer than its message")
                yield number, wire, int.from_bytes(data[at : at + size], "little")
                at += size
            else:
                raise _garbage(f"wire type {wire} is not in use")


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise _garbage("a number has more than ten bytes")
    raise _garbage("a number is cut off")


def _garbage(what: str) -> BadBody:
    return BadBody(f"not a protobuf message: {what}", remedy="send the message that the Content-Type names")


def text(value: Value) -> str:
    """A string field. What is not UTF-8 is replaced, so that a bad byte in one line does not lose the others."""
    return str(view(value), "utf-8", "replace")


def view(value: Value) -> memoryview:
    if isinstance(value, int):
        raise _garbage("there is a number in place of a message or a string")
    return value


def number(value: Value) -> int:
    if not isinstance(value, int):
        raise _garbage("there is a message or a string in place of a number")
    return value


def signed(value: Value) -> int:
    whole = number(value)
    return whole - (1 << 64) if whole >= 1 << 63 else whole


def double(value: Value) -> float:
    result: float = struct.unpack("<d", struct.pack("<Q", number(value)))[0]
    return result


def write(number_: int, value: int | str) -> bytes:
    """One field of an answer: a number or a string."""
    if isinstance(value, int):
        return _written(number_ << 3) + _written(value)
    data = value.encode()
    return _written(number_ << 3 | BYTES) + _written(len(data)) + data


def nested(number_: int, message: bytes) -> bytes:
    return _written(number_ << 3 | BYTES) + _written(len(message)) + message


def _written(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
