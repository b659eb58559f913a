"""Fluentd's forward protocol: MessagePack messages -> records, with the name of the chunk that the sender wants back.

https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1

All three modes are read: one event, a list of events, and packed events (also gzip). A record is what it is in
``/v1/records``: one field is the line, the others and the tag say whose it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack

from service.errors import BadBody, TooLarge
from service.intake.protocols.encodings import Bounded

LONGEST = 8 << 20
"""bytes of one message"""
_MOST_UNPACKED = 64 << 20
_MOST_EVENTS = 200_000
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message."""

    records: list[dict[str, Any]]
    name: str | bytes | None
    """what the sender wants to hear when it is stored; None: nothing"""
    bad: int = 0
    """events that are no records"""


class Messages:
    """Feed it what comes over a connection and take whole messages."""

    def __init__(self) -> None:
        self._unpacker = _unpacker(LONGEST)

    def feed(self, data: bytes) -> Iterator[Chunk]:
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                if message is not None:  # a heartbeat
                    yield _chunk(message)
        except msgpack.BufferFull:
            raise TooLarge(f"a message of more than {LONGEST:,} bytes", remedy="make chunks smaller") from None
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:  # TypeError: a map as a key
            raise BadBody(f"not MessagePack: {str(error)[:100]}", remedy="send Fluentd's forward protocol") from None


def answer(chunk: Chunk) -> bytes:
    """The acknowledgement."""
    return bytes(msgpack.packb({"ack": chunk.name}))


def _unpacker(most: int) -> Any:
    return msgpack.Unpacker(
        raw=False,
        unicode_errors="surrogateescape",
        strict_map_key=False,
        max_buffer_size=most,
        ext_hook=lambda code, data: None,
    )


def _chunk(message: Any) -> Chunk:
    if not isinstance(message, list) or len(message) < 2 or not isinstance(message[0], str):
        raise BadBody("this is no message of the forward protocol", remedy="send [tag, time, record] or [tag, entries]")
    tag, body = message[0], message[1]
    if isinstance(body, list):
        option = _option(message, 2)
        events: Iterator[Any] = iter(body)
    elif isinstance(body, bytes | str):
        option = _option(message, 2)
        events = _packed(body, str(option.get("compressed", "")))
    else:
        option = _option(message, 3)
        events = iter([[body, message[2] if len(message) > 2 else None]])
    records: list[dict[str, Any]] = []
    bad = 0
    for event in events:
        if len(records) + bad >= _MOST_EVENTS:
            raise TooLarge(f"more than {_MOST_EVENTS:,} events in one message", remedy="make chunks smaller")
        if isinstance(event, list) and len(event) > 1 and isinstance(event[1], dict):
            records.append({"tag": tag, **{str(key): _plain(value) for key, value in event[1].items()}})
        else:
            bad += 1
    name = option.get("chunk")
    return Chunk(records, name if isinstance(name, str | bytes) and name else None, bad)


def _option(message: list[Any], at: int) -> dict[Any, Any]:
    option = message[at] if len(message) > at else None
    return option if isinstance(option, dict) else {}


def _packed(body: bytes | str, compressed: str) -> Iterator[Any]:
    data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body
    unpacker, content = _unpacker(LONGEST), Bounded("gzip" if compressed == "gzip" else "", _MOST_UNPACKED)
    for piece in content.feed(data):
        unpacker.feed(piece)
        yield from unpacker
    content.end()


def _plain(value: Any, depth: int = 0) -> Any:
    """As JSON would have it: no bytes, no keys that are no texts."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if depth >= _DEEPEST:
        return None
    if isinstance(value, dict):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, depth + 1) for inner in value]
    return value
