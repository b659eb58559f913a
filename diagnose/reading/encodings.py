"""UTF-16 and UTF-32 -> UTF-8, and CRLF -> LF, as the bytes come. Everything else passes unchanged.

A byte order mark gives the encoding. Without a mark, the zeros of plain text do: every second byte is zero in UTF-16, three of
four in UTF-32. The first bytes decide. They are held only if one of the first four is zero. The end of the first line shows
whether lines end with CRLF.
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
_ZEROS: dict[tuple[int, ...], str] = {
    (0, 1, 0, 1): "utf-16-le",
    (1, 0, 1, 0): "utf-16-be",
    (0, 1, 1, 1): "utf-32-le",
    (1, 1, 1, 0): "utf-32-be",
}
"""which of four bytes are (nearly) always zero (1) -> the encoding"""
_TELLS = 256


def encoding_of(head: bytes) -> tuple[str, int]:
    """(name of the encoding, length of its mark). The name is empty for ASCII, UTF-8 and all that is not Unicode."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    if len(head) < 4 or 0 not in head[:4]:
        return "", 0
    shares = []
    for place in range(4):
        every = head[place::4]
        shares.append(every.count(0) / len(every))
    # Letters beyond ASCII have no zeros, so half of the places are enough if there are no zeros elsewhere.
    seen = tuple(1 if share > 0.5 else 0 if share < 0.15 else -1 for share in shares)
    return _ZEROS.get(seen, ""), 0


class Decoder:
    """The bytes of one source -> UTF-8. ``state`` is all that the next bytes depend on."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """bytes that do not decide yet; None once it is decided"""
        self._encoding = ""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        if self._head is not None:
            head = self._head + chunk
            if not last and (len(head) < 4 or (len(head) < _TELLS and 0 in head[:4])):
                self._head = head
                return b""
            self._head = None
            encoding, mark = encoding_of(head)
            self._use(encoding)
            chunk = head[mark:]
        if self._decoder is None:
            return chunk
        return self._decoder.decode(chunk, last).encode("utf-8", "replace")

    @property
    def plain(self) -> bool:
        """Whether the bytes pass unchanged from now on."""
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


class LineEnds:
    """CRLF -> LF in a source whose first line ends with CRLF. A CR is held until the byte after it has come."""

    def __init__(self) -> None:
        self._windows: bool | None = None
        self._held = b""

    @property
    def plain(self) -> bool:
        """Whether the bytes pass unchanged from now on."""
        return self._windows is False and not self._held

    def feed(self, data: bytes) -> bytes:
        if self._windows is False:
            return data
        data = self._held + data if self._held else data
        self._held = b""
        if self._windows is None and (end := data.find(b"\n")) >= 0:
            self._windows = data[max(0, end - 1) : end] == b"\r"
            if not self._windows:
                return data
        if data.endswith(b"\r"):
            data, self._held = data[:-1], b"\r"
        return data.replace(b"\r\n", b"\n") if self._windows else data

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held

    @property
    def state(self) -> tuple[bool | None, bytes]:
        return self._windows, self._held

    @state.setter
    def state(self, state: tuple[bool | None, bytes]) -> None:
        self._windows, self._held = state
