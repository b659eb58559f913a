"""JSON records, one object per line or an array: from the HTTP outputs of Fluent Bit, Vector, syslog-ng and rsyslog.

The line is one of the fields that ``rules/identity.yaml`` lists under ``text``. A record without any of them is kept as JSON.
The other fields say whose it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import BadBody, TooLarge
from service.intake.batch import Batch
from service.intake.protocols.gathering import LARGEST, Gathering
from service.intake.protocols.identity import Identities
from service.intake.protocols.requests import Decoded, Head

LARGEST_ARRAY = 8 << 20
LONGEST_LINE = 2 << 20
MOST_PARTS = 400_000
"""objects and arrays in one JSON text; two bytes of a body can take a hundred of memory"""
MOST_COMMAS = 4_000_000
"""also those in its strings: logs have many, and a short string takes sixty bytes"""


class Records:
    """Feed it the unpacked body and take batches. ``end`` gives what is left, and what could not be read."""

    def __init__(self, head: Head, identities: Identities, job: str | None = None) -> None:
        self._identities = identities
        self._gathering = Gathering(head, identities, job)
        self._digest = hashlib.blake2b(digest_size=32)
        self._held = bytearray()
        self._array: bool | None = None
        self._since_cut = 0
        self._too_long = False
        self.total = Decoded([])

    def feed(self, data: bytes) -> Iterator[Batch]:
        self._held += data
        if self._array is None:
            start = self._held.lstrip()
            if start:
                self._array = start.startswith(b"[")
        if self._array:
            if len(self._held) > LARGEST_ARRAY:
                raise TooLarge(
                    f"an array of more than {LARGEST_ARRAY:,} bytes", remedy="send smaller arrays, or one record per line"
                )
            return
        yield from self._lines()

    def _lines(self) -> Iterator[Batch]:
        *lines, rest = self._held.split(b"\n")
        self._held = rest
        for line in lines:
            if self._too_long:
                self._too_long = False  # this is the end of a line that was given up
                continue
            self._line(bytes(line))
            if self._since_cut >= LARGEST:
                yield from self.flush()
        if len(self._held) > LONGEST_LINE:
            if not self._too_long:
                self._gathering.decoded.lines += 1
                self._gathering.decoded.reject(f"a record of more than {LONGEST_LINE:,} bytes")
            self._too_long = True
            self._held.clear()

    def _line(self, line: bytes) -> None:
        self._since_cut += len(line) + 1
        self._digest.update(line)
        if not line.strip():
            return
        try:
            record = parsed(line)
        except BadBody as error:
            self._gathering.decoded.lines += 1
            self._gathering.decoded.reject(str(error))
            return
        self._add(record)

    def _add(self, record: Any) -> None:
        if isinstance(record, str):
            record = {self._identities.text[0]: record}
        if not isinstance(record, dict):
            self._gathering.decoded.lines += 1
            self._gathering.decoded.reject("a record is no object")
            return
        text, partial = line_of(record, self._identities)
        self._gathering.add(self._identities.identity(self._identities.known(record)), text, partial=partial)

    def flush(self) -> Iterator[Batch]:
        """The whole lines so far: nothing came for a while, or the body has ended."""
        decoded = self._gathering.end(self._digest.digest())
        self._since_cut = 0
        self.total.lines += decoded.lines
        self.total.rejected += decoded.rejected
        self.total.why = self.total.why or decoded.why
        yield from decoded.batches

    def end(self) -> Iterator[Batch]:
        """The body has ended."""
        if self._array:
            self._digest.update(self._held)
            records = parsed(bytes(self._held))
            for record in records:
                self._add(record)
        elif self._held and not self._too_long:
            self._line(bytes(self._held))
        self._held.clear()
        yield from self.flush()


def check_parts(body: bytes) -> None:
    if body.count(b"{") + body.count(b"[") > MOST_PARTS:
        raise TooLarge(f"more than {MOST_PARTS:,} objects and arrays", remedy="send fewer records at once")
    if body.count(b",") > MOST_COMMAS:
        raise TooLarge(f"more than {MOST_COMMAS:,} commas", remedy="send fewer records at once")


def parsed(body: bytes) -> Any:
    """JSON from a stranger, with limits for its depth, its parts and its digits."""
    check_parts(body)
    try:
        # A program may print any bytes, and shippers put them into JSON unchanged. They go through here unchanged.
        return json.loads(body.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise BadBody("the JSON is nested too deeply", remedy="send flat records") from None
    except ValueError as error:
        raise BadBody(f"not JSON: {error}", remedy="send one JSON object per line, or an array of them") from None


def line_of(record: Mapping[str, Any], identities: Identities) -> tuple[bytes, bool]:
    """(the line of a record, whether more of that line is to come)."""
    partial = any(record.get(name) == value for name, value in identities.partial)
    for name in identities.text:
        value = record.get(name)
        if value is None:
            value = record.get(name.upper())
        if isinstance(value, str):
            return encoded(value), partial
    return encoded(json.dumps(record, ensure_ascii=False, separators=(",", ":"))), partial


def encoded(text: str) -> bytes:
    """Bytes that were no UTF-8 come out as they came in. Other lone surrogates, which JSON can spell, become question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
