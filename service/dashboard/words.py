"""Numbers and times as people read them: ``1.2 k``, ``3 h 10 m``, ``4 min ago``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

LONGEST = 4000
"""characters that are shown of a line"""
_THIN = "\u00a0"
"""keeps a number and its unit on one line"""
_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def number(value: float | None) -> str:
    """``950``, ``1.2 k``, ``3.4 M``; a dash for what is not known."""
    if value is None or value != value:
        return "–"
    for prefix, size in _PREFIXES:
        if abs(value) >= size * 0.99995:
            return f"{_three(value / size)}{_THIN}{prefix}"
    return _three(value)


def _three(value: float) -> str:
    """Three digits, except for whole numbers: 999, 12.3, 0.00123."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1000 else f"{float(f'{value:.3g}'):g}"


def size(count: float | None) -> str:
    """Bytes."""
    return "–" if count is None else f"{number(count)}B" if count >= 1000 else f"{count:.0f}{_THIN}B"


def share(part: float | None) -> str:
    """``0.034`` as ``3.4 %``."""
    if part is None:
        return "–"
    if 0 < part < 0.0001:
        return f"< 0.01{_THIN}%"
    return f"{100 * part:.0f}{_THIN}%" if part >= 0.0995 or part == 0 else f"{100 * part:.2g}{_THIN}%"


def span(seconds: float | None) -> str:
    """``45 s``, ``12 m``, ``3 h 10 m``, ``2 d 4 h``."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole or seconds <= 0 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} m"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} m" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def gpu_hours(hours: float | None) -> str:
    return "–" if hours is None else f"{number(hours)} GPU h"


def moment(seconds: float | None) -> Markup:
    """A point in time. The page's script puts it into the viewer's time zone; without the script it is in UTC."""
    if seconds is None:
        return Markup("<span class='none'>–</span>")
    when = datetime.fromtimestamp(seconds, UTC)
    exact = when.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"), exact, when.strftime("%d %b %H:%M")
    )


def ago(seconds: float | None, now: float) -> Markup:
    """How long ago, with the exact time on hover."""
    if seconds is None:
        return Markup("<span class='none'>–</span>")
    when = datetime.fromtimestamp(seconds, UTC)
    words = "now" if now - seconds < 1 else f"{span(now - seconds)} ago" if now >= seconds else f"in {span(seconds - now)}"
    return Markup('<time data-ago datetime="{}" title="{}">{}</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime("%Y-%m-%d %H:%M:%S UTC"), words
    )


def detail(values: Mapping[str, Any]) -> str:
    """An entry of the audit trail in words: ``from proposed, to approved, fence 2``. Unknown values are left out."""
    parts = []
    for name, value in values.items():
        if value is None or value == [] or value == {}:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts) or "–"


# Written as escapes: characters that reverse text, hide in it, or move a terminal's cursor must be visible and have no effect.
_HIDDEN = {
    *range(0x09), *range(0x0A, 0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
    *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080), *range(0xD800, 0xE000),
}  # fmt: skip

_PARTS = re.compile(r"(?<=[_/.:,-])(?=\w)")


def printable(text: str, most: int = LONGEST) -> str:
    r"""Text of a log with ``\x1b`` and the like as visible codes. The middle of a long text is left out."""
    if len(text) > most:
        left_out = len(text) - most
        text = f"{text[: most * 2 // 3]} … {left_out:,} characters … {text[len(text) - most // 3 :]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if ord(c) in _HIDDEN else c for c in text)


def parted(text: str) -> Markup:
    """A name that is shown in a narrow column: it may go on in the next line behind a sign, not within a word."""
    return Markup("<wbr>").join(escape(part) for part in _PARTS.split(text))


def _escape(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
