"""Splunk's HTTP event collector: JSON events one after the other, or raw lines.

https://docs.splunk.com/Documentation/Splunk/latest/Data/FormateventsforHTTPEventCollector

``event`` is the line, or an object with the line in it; ``host``, ``source`` and ``fields`` say whose it is. The answers have
Splunk's codes, and 503 where others get 429: some of its clients give up at any 4xx.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from service.errors import BadBody, Busy, Refused, Unavailable
from service.intake.protocols.gathering import Gathering, digest
from service.intake.protocols.identity import Identities
from service.intake.protocols.records import check_parts, encoded, line_of
from service.intake.protocols.requests import Decoded, Head

CHANNEL = "x-splunk-request-channel"
HEALTHY = {"text": "HEC is healthy", "code": 17}
FULL = {"text": "HEC is unhealthy, queues are full", "code": 18}
_SAID_OF_ALL = ("host", "source", "sourcetype", "index")
_BETWEEN = re.compile(r"[\s,]*")
_SUCCESS, _INVALID, _BUSY, _NO_DATA = 0, 6, 9, 5


def decode(head: Head, body: bytes, identities: Identities) -> Decoded:
    """The batches of ``/services/collector/event``."""
    gathering = Gathering(_without_source(head), identities)
    said_of_all = {name: head.query[name] for name in _SAID_OF_ALL if head.query.get(name)}
    for event in _objects(body):
        _add(event, said_of_all, gathering, identities)
    return gathering.end(digest(body))


def decode_raw(head: Head, body: bytes, identities: Identities) -> Decoded:
    """The batches of ``/services/collector/raw``: lines, with the address to say whose they are."""
    gathering = Gathering(head, identities)
    owner = {name: head.query[name] for name in _SAID_OF_ALL if head.query.get(name)}
    if body:
        gathering.add(identities.identity(identities.known(owner)), body)
        gathering.decoded.lines = body.count(b"\n") + (not body.endswith(b"\n"))
        gathering.decoded.rejected *= gathering.decoded.lines
    return gathering.end(digest(body))


def _without_source(head: Head) -> Head:
    """Each event may have a source of its own, so the one in the address is only a default."""
    return Head({name: value for name, value in head.query.items() if name != "source"}, head.headers)


def _objects(body: bytes) -> Iterator[Any]:
    """JSON values one after the other, with or without white space between them. Lists stand for what is in them."""
    check_parts(body)
    text = body.decode("utf-8", "surrogateescape")
    decoder, at = json.JSONDecoder(), 0
    while (at := _end_of_gap(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except RecursionError:
            raise BadBody("the JSON is nested too deeply", remedy="send flat events") from None
        except ValueError as error:
            raise BadBody(f"not JSON: {error}", remedy="send JSON events one after the other") from None
        yield from value if isinstance(value, list) else (value,)


def _end_of_gap(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found is not None else at


def _add(event: Any, said_of_all: dict[str, str], gathering: Gathering, identities: Identities) -> None:
    content = event.get("event") if isinstance(event, dict) else None
    if content is None or content == "":
        gathering.decoded.lines += 1
        gathering.decoded.reject("an event has no text in its field 'event'")
        return
    known = {**said_of_all, **{name: event[name] for name in _SAID_OF_ALL if event.get(name)}}
    if isinstance(event.get("fields"), dict):
        known |= event["fields"]
    if isinstance(content, dict):
        text, partial = line_of(content, identities)
        known |= content
    else:
        text, partial = encoded(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)), False
    gathering.add(identities.identity(identities.known(known)), text, partial=partial)


# --- answers


class Acks:
    """Numbers for clients that ask later whether what they sent is stored.

    A number is given only to what is on disk. So the answer is yes for each that was given, also before a restart, since the
    numbers begin at the time of the start.
    """

    def __init__(self) -> None:
        self._first = time.time_ns() // 1_000_000
        self._given = itertools.count(self._first)
        self._next = self._first

    def give(self) -> int:
        number = next(self._given)
        self._next = number + 1
        return number

    def stored(self, asked: list[int]) -> dict[str, bool]:
        return {str(number): number < self._next for number in asked}


def answer(decoded: Decoded, ack: int | None) -> tuple[int, dict[str, Any]]:
    """(status, body). Events that can never be stored do not make the client send the others again."""
    if not decoded.lines:
        return 400, {"text": "No data", "code": _NO_DATA}
    if decoded.rejected:
        text = f"{decoded.rejected} of {decoded.lines} events were not stored: {decoded.why}"
        return 400, {"text": text, "code": _INVALID}
    said: dict[str, Any] = {"text": "Success", "code": _SUCCESS}
    return 200, said if ack is None else {**said, "ackId": ack}


def refusal(refused: Refused) -> tuple[int, dict[str, Any]]:
    """(status, body)."""
    if isinstance(refused, Busy | Unavailable):
        return 503, {"text": f"Server is busy: {refused}", "code": _BUSY}
    return refused.status, {"text": str(refused), "code": _INVALID}
