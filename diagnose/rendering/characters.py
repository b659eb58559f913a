"""Text of logs and names of files, made safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with control characters shown as escapes, so that no terminal or viewer acts on them."""
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()
