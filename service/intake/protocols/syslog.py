"""Syslog over TCP: frames (RFC 6587) -> messages (RFC 5424, else RFC 3164) -> a line and whose it is.

A message says whose it is by its structured data, ``[diagnose@0 job="run7" rank="3"]``, and by its host and program. Which
framing a sender uses is seen from the first byte of each message: a digit counts octets, anything else ends with a line end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST = 256 << 10
"""bytes of one message; RFC 5424 asks for 2 KiB"""
TOKEN = "token"  # noqa: S105 - the name of a parameter
OURS = "diagnose"
"""the structured data that may name a token: ``diagnose@0`` or ``diagnose``"""
_MOST_DIGITS = 7
_ENDS = re.compile(rb"[\n\0]")
_5424 = re.compile(r"<(\d{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) ")
_3164 = re.compile(r"<(\d{1,3})>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\S+) ")
_PRIORITY = re.compile(r"<(\d{1,3})>")
_TAG = re.compile(r"([A-Za-z0-9_./@~+=,-]{1,100})(?:\[(\d{1,10})\])?: ?")
_ELEMENT = re.compile(r"\[([^ =\]\"]{1,64})")
_PARAMETER = re.compile(r' ([^ =\]"]{1,64})="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_MOST_PARAMETERS = 64


class Frames:
    """Feed it what comes over a connection and take whole messages. Memory holds one message at a time."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skip = 0
        """bytes of a counted message that is too long"""
        self._cut = False
        """the rest of a line that was cut comes next"""
        self.too_long = 0
        """messages that were left out or cut"""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._held += data
        while self._held:
            if self._skip:
                gone = min(self._skip, len(self._held))
                del self._held[:gone]
                self._skip -= gone
                continue
            message = self._line() if self._cut or not self._is_counted() else self._counted()
            if message is None:
                return
            if message:
                yield message

    def end(self) -> Iterator[bytes]:
        """The connection has ended. A last line may have no end; a counted message that is cut off is left out."""
        if self._held and not self._skip and not self._cut and not self._is_counted():
            yield bytes(self._held)
        self._held.clear()

    def _is_counted(self) -> bool:
        return 0x31 <= self._held[0] <= 0x39

    def _counted(self) -> bytes | None:
        digits, space, _ = self._held[: _MOST_DIGITS + 1].partition(b" ")
        if not digits.isdigit() or (not space and len(digits) > _MOST_DIGITS):
            return self._line()  # a line that only begins with a digit
        if not space:
            return None
        size, start = int(digits), len(digits) + 1
        if size > LONGEST:
            self.too_long += 1
            self._skip = size
            del self._held[:start]
            return b""
        if len(self._held) < start + size:
            return None
        message = bytes(self._held[start : start + size])
        del self._held[: start + size]
        return message

    def _line(self) -> bytes | None:
        found = _ENDS.search(self._held)
        if found is None:
            if len(self._held) <= LONGEST:
                return None
            message = b"" if self._cut else bytes(self._held[:LONGEST])
            self.too_long += not self._cut
            self._held.clear()
            self._cut = True
            return message
        self.too_long += not self._cut and found.start() > LONGEST
        message = b"" if self._cut else bytes(self._held[: min(found.start(), LONGEST)])
        del self._held[: found.end()]
        self._cut = False
        return message


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    text: bytes
    attributes: dict[str, str] = field(default_factory=dict)
    token: str | None = None


def parsed(data: bytes) -> Message:
    """A message of either format. One of neither is a line without attributes."""
    said = data.decode("utf-8", "surrogateescape").rstrip("\r\n\0")
    if found := _5424.match(said):
        return _of_5424(said, found)
    if found := _3164.match(said):
        return _of_3164(said[found.end() :], found[2])
    if found := _PRIORITY.match(said):
        # Without a header nobody knows whether this begins with a program or with the name of an error: all of it is the line.
        bare = said[found.end() :]
        tag = _TAG.match(bare)
        return Message(_bytes(bare), {"program": tag[1]} if tag else {})
    return Message(_bytes(said))


def _of_5424(said: str, found: re.Match[str]) -> Message:
    attributes = {
        name: value
        for name, value in (("host", found[3]), ("program", found[4]), ("procid", found[5]), ("msgid", found[6]))
        if value != "-"
    }
    at, token, count = found.end(), None, 0
    if said.startswith("-", at):
        at += 1
    while element := _ELEMENT.match(said, at):
        at = element.end()
        name = element[1].partition("@")[0]
        while (parameter := _PARAMETER.match(said, at)) is not None:
            at, count = parameter.end(), count + 1
            value = _ESCAPED.sub(r"\1", parameter[2])
            if name == OURS and parameter[1] == TOKEN:
                token = value
            elif count <= _MOST_PARAMETERS:
                attributes[parameter[1]] = value
        if not said.startswith("]", at):
            return Message(_bytes(said), attributes, token)  # it is not what it says; nothing of it is lost
        at += 1
    return Message(_bytes(said[at:].removeprefix(" ").removeprefix("\ufeff")), attributes, token)


def _of_3164(said: str, host: str) -> Message:
    attributes = {"host": host}
    if found := _TAG.match(said):
        attributes["program"] = found[1]
        if found[2]:
            attributes["procid"] = found[2]
        said = said[found.end() :]
    return Message(_bytes(said), attributes)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
