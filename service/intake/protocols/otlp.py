"""OTLP/HTTP logs, protobuf and JSON (https://opentelemetry.io/docs/specs/otlp/): ExportLogsServiceRequest -> batches.

What cannot be stored is counted in the answer's partial success, so that a collector does not send it again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import BadBody, Unsupported
from service.intake.protocols import protobuf
from service.intake.protocols.gathering import Gathering, digest
from service.intake.protocols.identity import Identities
from service.intake.protocols.protobuf import BYTES, Wire, view
from service.intake.protocols.records import encoded, line_of, parsed
from service.intake.protocols.requests import Decoded, Head

LARGEST = 8 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"
_DEEPEST = 8


def decode(head: Head, body: bytes, identities: Identities) -> Decoded:
    """The batches of an export."""
    gathering = Gathering(head, identities)
    match head.media_type:
        case "application/x-protobuf":
            _decode_protobuf(memoryview(body), gathering, identities)
        case "application/json":
            _decode_json(body, gathering, identities)
        case other:
            raise Unsupported(
                f"logs cannot be sent as {other[:60]!r}", where="Content-Type", remedy=f"use {PROTOBUF} or {JSON}"
            )
    return gathering.end(digest(body))


def answer(media_type: str, decoded: Decoded) -> bytes:
    """ExportLogsServiceResponse, in the encoding of the request."""
    if media_type == JSON:
        partial = {"rejectedLogRecords": str(decoded.rejected), "errorMessage": decoded.why} if decoded.rejected else None
        return json.dumps({"partialSuccess": partial} if partial else {}).encode()
    if not decoded.rejected:
        return b""
    return protobuf.nested(1, protobuf.write(1, decoded.rejected) + protobuf.write(2, decoded.why or ""))


def refusal(media_type: str, code: int, message: str) -> bytes:
    """google.rpc.Status, which the protocol wants for whatever is not 2xx."""
    if media_type == JSON:
        return json.dumps({"code": code, "message": message}).encode()
    return protobuf.write(1, code) + protobuf.write(2, message)


# --- one record, whichever encoding it came in


def _add(gathering: Gathering, identities: Identities, owner: dict[str, str], attributes: Mapping[str, Any], body: Any) -> None:
    # A record knows more than its resource.
    known = {**owner, **identities.known(attributes)} if attributes else owner
    if isinstance(body, dict):
        text, partial = line_of(body, identities)
        known = {**known, **identities.known(body)}
    elif isinstance(body, bytes):
        text, partial = body, False
    elif isinstance(body, str):
        text, partial = encoded(body), False
    elif body is None:
        text, partial = b"", False
    else:
        text, partial = encoded(json.dumps(body, ensure_ascii=False, default=_as_text)), False
    if not partial and attributes:
        partial = any(attributes.get(name) == value for name, value in identities.partial)
    gathering.add(identities.identity(known), text, partial=partial)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# --- protobuf: opentelemetry/proto/logs/v1/logs.proto; the numbers are its field numbers


def _decode_protobuf(body: memoryview, gathering: Gathering, identities: Identities) -> None:
    wire = Wire()
    for number, kind, resource_logs in wire.fields(body):
        if number != 1 or kind != BYTES:
            continue
        owner: dict[str, str] = {}
        for number, kind, resource in wire.fields(view(resource_logs)):
            if number == 1 and kind == BYTES:
                owner = identities.known(_attributes(wire, view(resource), 1))
        for number, kind, scope_logs in wire.fields(view(resource_logs)):
            if number != 2 or kind != BYTES:
                continue
            for number, kind, record in wire.fields(view(scope_logs)):
                if number == 2 and kind == BYTES:
                    body_, attributes = _record(wire, view(record))
                    _add(gathering, identities, owner, attributes, body_)


def _record(wire: Wire, record: memoryview) -> tuple[Any, dict[str, Any]]:
    body: Any = None
    attributes: dict[str, Any] = {}
    for number, kind, value in wire.fields(record):
        if number == 5 and kind == BYTES:
            body = _any(wire, view(value))
        elif number == 6 and kind == BYTES:
            key, inner = _pair(wire, view(value), 0)
            attributes[key] = inner
    return body, attributes


def _attributes(wire: Wire, message: memoryview, field: int, depth: int = 0) -> dict[str, Any]:
    pairs = (
        _pair(wire, view(value), depth) for number, kind, value in wire.fields(message) if number == field and kind == BYTES
    )
    return dict(pairs)


def _pair(wire: Wire, message: memoryview, depth: int) -> tuple[str, Any]:
    key, inner = "", None
    for number, kind, value in wire.fields(message):
        if number == 1 and kind == BYTES:
            key = protobuf.text(value)
        elif number == 2 and kind == BYTES:
            inner = _any(wire, view(value), depth)
    return key, inner


def _any(wire: Wire, message: memoryview, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise BadBody("a value is nested too deeply", remedy=f"nest at most {_DEEPEST} levels")
    result: Any = None
    for number, _, value in wire.fields(message):
        match number:
            case 1:
                result = protobuf.text(value)
            case 2:
                result = bool(protobuf.number(value))
            case 3:
                result = protobuf.signed(value)
            case 4:
                result = protobuf.double(value)
            case 5:
                result = [_any(wire, view(v), depth + 1) for n, kind, v in wire.fields(view(value)) if n == 1 and kind == BYTES]
            case 6:
                result = _attributes(wire, view(value), 1, depth + 1)
            case 7:
                result = bytes(view(value))
    return result


# --- JSON: the same messages in lowerCamelCase


def _decode_json(body: bytes, gathering: Gathering, identities: Identities) -> None:
    request = parsed(body)
    if not isinstance(request, dict):
        raise _not_it("the body")
    for resource_logs in _list(request, "resourceLogs"):
        resource = resource_logs.get("resource", {})
        if not isinstance(resource, dict):
            raise _not_it("resource")
        owner = identities.known(_json_attributes(resource))
        for scope_logs in _list(resource_logs, "scopeLogs"):
            for record in _list(scope_logs, "logRecords"):
                value = _json_any(record.get("body"))
                _add(gathering, identities, owner, _json_attributes(record), value)


def _list(message: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    value = message.get(name)
    if value is None:
        return
    if not isinstance(value, list):
        raise _not_it(name)
    for item in value:
        if not isinstance(item, dict):
            raise _not_it(name)
        yield item


def _json_attributes(message: dict[str, Any], name: str = "attributes", depth: int = 0) -> dict[str, Any]:
    return {
        key: _json_any(pair.get("value"), depth) for pair in _list(message, name) if isinstance(key := pair.get("key"), str)
    }


def _json_any(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise BadBody("a value is nested too deeply", remedy=f"nest at most {_DEEPEST} levels")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _not_it("a value")
    for kind, inner in value.items():
        match kind:
            case "stringValue" | "boolValue" | "doubleValue" if isinstance(inner, str | bool | float | int):
                return inner
            case "intValue" if isinstance(inner, str | int):
                return _whole(inner)
            case "bytesValue" if isinstance(inner, str):
                try:
                    return base64.b64decode(inner, validate=True)
                except ValueError:
                    raise _not_it("bytesValue") from None
            case "arrayValue" if isinstance(inner, dict):
                return [_json_any(item, depth + 1) for item in _list(inner, "values")]
            case "kvlistValue" if isinstance(inner, dict):
                return _json_attributes(inner, "values", depth + 1)
            case _:
                raise _not_it(kind[:40])
    return None


def _whole(value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        raise _not_it("intValue") from None


def _not_it(what: str) -> BadBody:
    return BadBody(
        f"{what} does not have the form that an ExportLogsServiceRequest needs", remedy="send OTLP/HTTP logs, version 1"
    )
