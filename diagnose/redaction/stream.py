"""Takes secrets out of raw log text, line by line as in the kept lines, so that a line keeps its number."""

from __future__ import annotations

import re

from diagnose.redaction.gate import gate
from diagnose.redaction.text import LEFT_OUT, holds_value, may_hide, redact, together

REACH = 16_384
"""most bytes between the beginning of a private key and its end"""
_LONGEST = 65_536
_NAME = 300
"""so much of a line is remembered as the name of what the next one holds"""
_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z0-9 ]{0,40}-----")
_END_LENGTH = 54
_KEY_BODY = re.compile(r"^[A-Za-z0-9+/]+=*\s*$|(?<=\s)[A-Za-z0-9+/]{16,}=*\s*$")


def conceal(data: bytes) -> bytes:
    """``data`` without secrets, with the same number of lines. Each line of a private key becomes a placeholder."""
    whole = Concealer()
    return whole.feed(data) + whole.rest()


def begun_key(data: bytes) -> bytes:
    """The end of ``data``, if it may be a private key that goes on."""
    return _without_keys(data)[1]


class Concealer:
    """``conceal`` for a text that comes in pieces, however they were cut.

    Half a line waits for its other half, and what may be a private key waits for its end. So the pieces that come out are other
    pieces, but the lines are the same. A line of more than 64 KiB is looked at in parts, cut at white space.
    """

    def __init__(self) -> None:
        self._half = self._key = self._line = b""

    def feed(self, piece: bytes) -> bytes:
        """The text that can be shown so far."""
        whole, self._half = _lines(self._half + piece)
        clear, self._key = _without_keys(self._key + whole)
        whole, self._line = _lines(self._line + clear)
        return _each(whole)

    def rest(self) -> bytes:
        """The text that was still held, when no more comes."""
        clear, key = _without_keys(self._key + self._half)
        rest = _each(self._line + clear + _placeholders(key))
        self._half = self._key = self._line = b""
        return rest


class LineConcealer:
    """``conceal`` for lines that are kept one by one, between lines of others. The lines of a key are known by their form."""

    def __init__(self) -> None:
        self._left = 0
        """bytes that may still belong to a key"""
        self._before = ""
        """the line before, which may name what this one holds"""
        self._number = 0

    def line(self, text: str, number: int | None = None) -> str:
        """``number``: of the line in its log; None: nothing was left out before it."""
        if number is not None and number > self._number + 1 and (not text or may_hide(text)):
            self._before = LEFT_OUT
        self._number = number if number is not None else self._number
        before, self._before = self._before, text[-_NAME:] or self._before
        told = together(before, text) if holds_value(text) else redact(text).text
        data = text.encode("utf-8", "replace")
        if self._left > 0:
            self._left = 0 if _KEY_ENDS.search(data) else self._left - len(data)
            return _KEY_BODY.sub("<private_key>", told)
        if (begins := _KEY_BEGINS.search(data)) and not _KEY_ENDS.search(data, begins.end()):
            self._left = REACH
        return told


def _lines(data: bytes) -> tuple[bytes, bytes]:
    """(whole lines, what waits for the rest of its line)."""
    cut = data.rfind(b"\n") + 1
    if len(data) - cut > _LONGEST:
        cut = max(data.rfind(space, cut) for space in (b"\r", b" ", b"\t")) + 1 or len(data)
    return data[:cut], data[cut:]


def _without_keys(data: bytes) -> tuple[bytes, bytes]:
    """(``data`` without private keys, what may be a key whose end is still to come)."""
    parts: list[bytes] = []
    done = 0
    while begins := _KEY_BEGINS.search(data, done):
        parts.append(data[done : begins.start()])
        ends = _KEY_ENDS.search(data, begins.end(), begins.end() + REACH + _END_LENGTH)
        if ends is None and len(data) - begins.end() <= REACH:
            return b"".join(parts), data[begins.start() :]
        done = (ends or begins).end()
        parts.append(_placeholders(data[begins.start() : done]))
    parts.append(data[done:])
    return b"".join(parts), b""


def _placeholders(key: bytes) -> bytes:
    return re.sub(rb"[^\n]+", b"<private_key>", key)


def _each(text: bytes) -> bytes:
    lines = text.split(b"\n")
    for hit in gate().hits(lines):
        lines[hit.line] = _concealed(lines[hit.line])
    return b"\n".join(lines)


def _concealed(line: bytes) -> bytes:
    text = line.decode("utf-8", "replace")
    told = redact(text).text
    return line if told == text else " ".join(told.splitlines()).encode() if "\n" in told else told.encode()
