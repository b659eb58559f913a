"""Recognises files that are not logs: programs, archives, images, numeric data, text in an unknown encoding.

The beginning and the end of a file decide. In doubt it is a log. A log may be damaged, may have zeros (the disk was full, or
the file was cut while it was written), and may be in UTF-16, UTF-32, or any encoding that contains ASCII.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

LOOK = 4096
"""bytes at the beginning and at the end that are looked at"""
_FEW = 0.03
"""share of control bytes: text has less; random bytes, programs and packed data have more"""
_SHORT, _PAGE = 16, 256
"""too few bytes to judge by shares; text of so many bytes has a blank or a line end"""


@dataclass(frozen=True, slots=True)
class NoLog:
    """What a file is instead of a log, and what can be done about it."""

    what: str
    remedy: str


_OTHER = "give the file that the job prints to"
_EXTRACT = "unpack it and give the folder or the files in it"
_KNOWN: tuple[tuple[re.Pattern[bytes], NoLog], ...] = tuple(
    (re.compile(begin, re.DOTALL), NoLog(what, remedy))
    for begin, what, remedy in (
        (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a bzip2 archive", "bzip2 -dc FILE | diagnose replay - reads it"),
        (rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18", "an lz4 archive", "lz4 -dc FILE | diagnose replay - reads it"),
        (rb"LZIP\x01", "an lzip archive", "lzip -dc FILE | diagnose replay - reads it"),
        (rb"\x89LZO\x00\r\n\x1a\n", "an lzop archive", "lzop -dc FILE | diagnose replay - reads it"),
        (rb"\x1f[\x9d\xa0]", "an archive of compress", "zcat FILE | diagnose replay - reads it"),
        (rb"\xff\x06\x00\x00sNaPpY", "a snappy archive", "unpack it, and give what comes out"),
        (rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", "a zip archive (or a checkpoint, a wheel, a document)", _EXTRACT),
        (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _EXTRACT),
        (rb"Rar!\x1a\x07", "a RAR archive", _EXTRACT),
        (rb".{257}ustar[\x00 ]", "a tar archive", _EXTRACT),
        (rb"LPKSHHRH", "a journal of systemd", "journalctl --file FILE | diagnose replay - reads it"),
        (rb"\x7fELF", "a program, a library or a memory dump", _OTHER),
        (rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff[\xe0-\xef]|GIF8[79]a", "a picture", _OTHER),
        (rb"%PDF-\d", "a PDF document", "give the text of it"),
        (rb"SQLite format 3\x00", "a database", _OTHER),
        (
            rb"\x89HDF\r\n\x1a\n|\x93NUMPY|PAR1[\x15\x19\x1c]|ARROW1\x00|GGUF[\x01-\x04]\x00\x00\x00",
            "a file of numbers",
            _OTHER,
        ),
        (rb"\x80[\x02-\x05](?:[\x95}\](KcX\x8a]|\x8c)", "a pickle of Python", _OTHER),
        (rb"[^\x00]{1,4}\x00{4,7}\{\"", "a file of weights (safetensors)", _OTHER),
    )
)
_UNKNOWN = NoLog("binary data of an unknown kind", _OTHER)
_ZEROS = NoLog("zero bytes only", "the file was reserved, or was cut back while a program wrote it: nothing of it is left")
_ENCODED = NoLog("text in an encoding that is not known", "iconv -f ENCODING -t UTF-8 FILE | diagnose replay - reads it")
_MARKS = (  # the longer ones first: that of UTF-32 LE begins like that of UTF-16 LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_CHARACTERS = {"Cn", "Co", "Cs"}
"""categories of what no text has: unassigned, for private use, half of a pair"""
_CONTROLS = bytes(c for c in range(1, 32) if c not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"


def no_log(head: bytes, tail: bytes = b"") -> NoLog | None:
    """What a file with this beginning and end is; None if it may be a log. An empty ``tail`` is unknown."""
    encoding = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
    if encoding is not None:
        return None if _is_mostly_text(head.decode(encoding, "replace")) else _UNKNOWN
    for begin, what in _KNOWN:
        if begin.match(head):
            return what
    parts = [part for part in (head, tail) if part]
    if parts and not any(part.strip(b"\0") for part in parts):
        return _ZEROS
    found = [_looks_like(part) for part in parts if part.strip(b"\0")]
    return found[0] if found and None not in found else None


def _looks_like(part: bytes) -> NoLog | None:
    text = part.replace(b"\0", b"")
    if len(text) < _SHORT:
        return None
    if len(text) - len(text.translate(None, _CONTROLS)) > _FEW * len(text):
        return _UNKNOWN
    if len(text) > _PAGE and b" " not in text and b"\n" not in text and not _is_utf8(text):
        return _ENCODED
    return None


def _is_mostly_text(text: str) -> bool:
    """Whether few of its characters cannot be any. Of random bytes after a mark, more than a tenth cannot."""
    strange = sum(c == "\N{REPLACEMENT CHARACTER}" or unicodedata.category(c) in _NO_CHARACTERS for c in text)
    return len(text) < _SHORT or strange <= _FEW * len(text)


def _is_utf8(text: bytes) -> bool:
    """Whether it is UTF-8. A character may be cut at either end."""
    start = next((at for at in range(min(4, len(text))) if text[at] & 0xC0 != 0x80), 0)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text[start:])
    except UnicodeDecodeError:
        return False
    return True
