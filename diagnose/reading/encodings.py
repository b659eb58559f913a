"""UTF-16 and UTF-32 -> UTF-8, as the bytes come; everything else passes untouched.

A byte order mark tells the encoding, and so do the zeros of plain text without a mark: every second byte of it is zero in
UTF-16, three of four in UTF-32. The first eight bytes decide, and they are held only where one of the first four is zero or
could begin a mark.
"""

from __future__ import annotations

import codecs

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before that of UTF-16, which begins like it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, ""),
)
_ZEROS = {
    "01010101": "utf-16-le",
    "10101010": "utf-16-be",
    "01110111": "utf-32-le",
    "11101110": "utf-32-be",
}
"""which of the first bytes are zero (1) -> the encoding"""
_TELLS = 8
_MAY_TELL = frozenset(b"\x00\xff\xfe\xef")


def encoding_of(head: bytes) -> tuple[str, int]:
    """(name of the encoding, length of its mark); the name is empty for ASCII, UTF-8 and whatever is no Unicode."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    zeros = "".join("01"[byte == 0] for byte in head[:_TELLS])
    for pattern, name in _ZEROS.items():
        if len(zeros) >= 4 and pattern.startswith(zeros):
            return name, 0
    return "", 0


class Decoder:
    """The bytes of one source -> UTF-8. ``state`` is all that the next bytes depend on."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """bytes that do not decide yet; None when it is decided"""
        self._encoding = ""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        if self._head is not None:
            head = self._head + chunk
            if not last and len(head) < _TELLS and (len(head) < 4 or not _MAY_TELL.isdisjoint(head[:4])):
                self._head = head
                return b""
            self._head = None
            encoding, mark = encoding_of(head) if not _MAY_TELL.isdisjoint(head[:4]) else ("", 0)
            self._use(encoding)
            chunk = head[mark:]
        if self._decoder is None:
            return chunk
        return self._decoder.decode(chunk, last).encode("utf-8", "replace")

    @property
    def plain(self) -> bool:
        """Whether the bytes pass untouched from now on."""
        return self._head is None and self._decoder is None

    @property
    def state(self) -> tuple[bytes | None, str, bytes]:
        pending = self._decoder.getstate()[0] if self._decoder is not None else b""
        return self._head, self._encoding, pending

    @state.setter
    def state(self, state: tuple[bytes | None, str, bytes]) -> None:
        self._head, encoding, pending = state
        self._use(encoding)
        if self._decoder is not None:
            self._decoder.setstate((pending, 0))

    def _use(self, encoding: str) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
