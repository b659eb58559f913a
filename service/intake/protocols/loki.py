"""Loki's push API: JSON, or protobuf in a snappy block.

https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs

The labels of a stream say whose its lines are. The structured metadata of an entry may say it more exactly.
"""

from __future__ import annotations

import json
from typing import Any

import cramjam

from service.errors import BadBody, TooLarge, Unsupported
from service.intake.protocols import protobuf
from service.intake.protocols.gathering import Gathering, digest
from service.intake.protocols.identity import Identities
from service.intake.protocols.protobuf import BYTES, Wire, view
from service.intake.protocols.records import encoded, parsed
from service.intake.protocols.requests import Decoded, Head

LARGEST = 8 << 20
_LONGEST_SELECTOR = 64 << 10


def decode(head: Head, body: bytes, identities: Identities) -> Decoded:
    """The batches of a push."""
    gathering = Gathering(head, identities)
    match head.media_type:
        case "application/x-protobuf" | "":
            body = _unsnapped(body)
            _decode_protobuf(memoryview(body), gathering, identities)
        case "application/json":
            _decode_json(body, gathering, identities)
        case other:
            raise Unsupported(
                f"pushes cannot be sent as {other[:60]!r}",
                where="Content-Type",
                remedy="use application/x-protobuf or application/json",
            )
    return gathering.end(digest(body))


def _unsnapped(body: bytes) -> bytes:
    """The content of a block. The block states its length first, so a bomb is refused before it is unpacked."""
    try:
        size = cramjam.snappy.decompress_raw_len(body)
        if size > LARGEST:
            raise TooLarge(f"the push holds {size:,} bytes", remedy=f"push at most {LARGEST:,} bytes at once")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise BadBody(f"not a snappy block ({error})", remedy="send protobuf in snappy's block format, or JSON") from None


# --- protobuf: pkg/push/push.proto; the numbers are its field numbers


def _decode_protobuf(body: memoryview, gathering: Gathering, identities: Identities) -> None:
    wire = Wire()
    for number, kind, stream in wire.fields(body):
        if number != 1 or kind != BYTES:
            continue
        owner: dict[str, str] = {}
        for number, kind, value in wire.fields(view(stream)):
            if number == 1 and kind == BYTES:
                owner = identities.known(selector(protobuf.text(value)))
        for number, kind, value in wire.fields(view(stream)):
            if number == 2 and kind == BYTES:
                _entry(wire, view(value), owner, gathering, identities)


def _entry(wire: Wire, entry: memoryview, owner: dict[str, str], gathering: Gathering, identities: Identities) -> None:
    line, metadata = b"", {}
    for number, kind, value in wire.fields(entry):
        if number == 2 and kind == BYTES:
            line = bytes(view(value))
        elif number == 3 and kind == BYTES:
            pair = {n: protobuf.text(v) for n, w, v in wire.fields(view(value)) if w == BYTES}
            metadata[pair.get(1, "")] = pair.get(2, "")
    known = {**owner, **identities.known(metadata)} if metadata else owner
    gathering.add(identities.identity(known), line)


def selector(text: str) -> dict[str, str]:
    """The labels in ``{job="train", pod="a-0"}``: as Prometheus writes them, with Go's escapes in the values."""
    if len(text) > _LONGEST_SELECTOR:
        raise TooLarge("the labels of a stream are too long", remedy=f"use at most {_LONGEST_SELECTOR:,} bytes")
    labels: dict[str, str] = {}
    at, end = 0, len(text)

    def skip(to: int) -> int:
        while to < end and text[to] in " \t\r\n,":
            to += 1
        return to

    at = skip(at)
    if at >= end or text[at] != "{":
        raise _bad_labels(text)
    at = skip(at + 1)
    while at < end and text[at] != "}":
        equals = text.find("=", at)
        if equals < 0:
            raise _bad_labels(text)
        name = text[at:equals].strip()
        at = skip(equals + 1)
        if at >= end or text[at] not in '"`':
            raise _bad_labels(text)
        value, at = _quoted(text, at)
        labels[name] = value
        at = skip(at)
    if at >= end:
        raise _bad_labels(text)
    return labels


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_CODES = {"x": 2, "u": 4, "U": 8}


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote, at = text[at], at + 1
    out: list[str] = []
    while at < len(text):
        c = text[at]
        at += 1
        if c == quote:
            return "".join(out), at
        if c != "\\" or quote == "`":
            out.append(c)
            continue
        kind = text[at : at + 1]
        at += 1
        if kind in _CODES:
            code, at = text[at : at + _CODES[kind]], at + _CODES[kind]
            try:
                out.append(chr(int(code, 16)))
            except (ValueError, OverflowError):
                raise _bad_labels(text) from None
        elif kind in _ESCAPES:
            out.append(_ESCAPES[kind])
        else:
            raise _bad_labels(text)
    raise _bad_labels(text)


def _bad_labels(text: str) -> BadBody:
    return BadBody("not a set of labels", where=text[:80], remedy='write them as {name="value", other="value"}')


# --- JSON


def _decode_json(body: bytes, gathering: Gathering, identities: Identities) -> None:
    push = parsed(body)
    streams = push.get("streams") if isinstance(push, dict) else None
    if not isinstance(streams, list):
        raise _not_it("streams")
    for stream in streams:
        if not isinstance(stream, dict):
            raise _not_it("a stream")
        labels = stream.get("stream", {})
        values = stream.get("values", [])
        if not isinstance(labels, dict) or not isinstance(values, list) or not values:
            raise _not_it("a stream")
        if not all(isinstance(value, str) for value in labels.values()):
            raise _not_it("the label of a stream")
        owner = identities.known(labels)
        for value in values:
            line, metadata = _json_entry(value)
            known = {**owner, **identities.known(metadata)} if metadata else owner
            gathering.add(identities.identity(known), encoded(line))


def _json_entry(value: Any) -> tuple[str, dict[str, Any]]:
    """[time, line] or [time, line, metadata]"""
    if not isinstance(value, list) or not 2 <= len(value) <= 3 or not isinstance(value[1], str):
        raise _not_it("a value")
    if not isinstance(value[0], str) or not value[0].lstrip("-").isdecimal():
        raise BadBody(f"{json.dumps(value[0])[:40]} is not a time", remedy="give nanoseconds since 1970 as a text")
    metadata = value[2] if len(value) == 3 else {}
    if not isinstance(metadata, dict):
        raise _not_it("the metadata of a value")
    return value[1], metadata


def _not_it(what: str) -> BadBody:
    return BadBody(
        f"{what} does not have the form that a push needs",
        remedy='send {"streams": [{"stream": {...}, "values": [["ns", "line"]]}]}',
    )
