"""Output for people: colours and links if they are wanted, aligned columns, and a progress bar (only on terminals)."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

_WIDTH, _NARROWEST, _WIDEST_PROSE = 100, 40, 100
_LINKING: Final = {
    "TERM_PROGRAM": ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio", "Tabby"),
    "TERM": ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra", "contour"),
}
"""variable -> its value in terminals that show OSC 8 as a link"""
_LINKING_VARIABLES = ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
"""only set by such terminals"""
_OLDEST_VTE = 5000
_AT_LINE: Final = {"TERM_PROGRAM": ("iTerm.app", "vscode"), "TERM": ("xterm-kitty",)}
"""terminals that read a fragment as a line; others would look for a file of that name"""


class Style:
    """Colours and links, if ``stream`` is a terminal or FORCE_COLOR is set, but not with NO_COLOR; and how wide it is."""

    def __init__(self, stream: TextIO) -> None:
        known = os.environ
        forced = known.get("FORCE_COLOR", "0") not in ("", "0")  # for "less -R", and the pages of a CI system
        shows = stream.isatty() and known.get("TERM") != "dumb"
        self.on = (shows or forced) and not known.get("NO_COLOR")
        self._links = self.on and shows_links(known)
        self._at_line = _named(_AT_LINE, known)
        columns = shutil.get_terminal_size((_WIDTH, 24)).columns if stream.isatty() else _WIDTH
        self.width = max(_NARROWEST, columns)
        """of lines of a log"""
        self.prose = min(self.width, _WIDEST_PROSE)
        """of sentences, which nobody reads in long lines"""

    def link(self, path: str, line: int, text: str) -> str:
        """``text`` as a link to a file, if the terminal shows links."""
        if not self._links or not os.path.isfile(path):
            return text
        import socket
        from urllib.parse import quote

        address = f"file://{socket.gethostname()}{quote(os.path.abspath(path))}{f'#{line}' if self._at_line else ''}"
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def red(self, text: str) -> str:
        return self._paint("31", text)

    def green(self, text: str) -> str:
        return self._paint("32", text)

    def yellow(self, text: str) -> str:
        return self._paint("33", text)

    def cyan(self, text: str) -> str:
        return self._paint("36", text)


def shows_links(known: Mapping[str, str]) -> bool:
    """Whether a terminal with these variables shows OSC 8 as a link. FORCE_HYPERLINK decides if it is set."""
    if "FORCE_HYPERLINK" in known:
        return known["FORCE_HYPERLINK"] != "0"
    vte = known.get("VTE_VERSION", "")
    return (
        (vte.isdecimal() and int(vte) >= _OLDEST_VTE)
        or any(name in known for name in _LINKING_VARIABLES)
        or _named(_LINKING, known)
    )


def _named(terminals: Mapping[str, Sequence[str]], known: Mapping[str, str]) -> bool:
    return any(known.get(variable) in names for variable, names in terminals.items())


def table(rows: Sequence[Sequence[str]], style: Style, *, header: bool = False, width: int | None = None) -> str:
    """Aligned columns, numbers to the right. The last column is not padded, and is cut if a row is wider than ``width``."""
    if not rows:
        return ""
    widths = [max(columns_of(row[index]) for row in rows) for index in range(len(rows[0]))]
    body = rows[1:] if header else rows
    right = [bool(body) and all(_numeric(row[index]) for row in body) for index in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for index, cell in enumerate(row):
            pad = " " * (widths[index] - columns_of(cell))
            cells.append(pad + cell if right[index] else cell if index == len(row) - 1 else cell + pad)
        text = "  ".join(cells).rstrip()
        text = text if width is None else shortened(text, width)
        lines.append(style.dim(text) if header and number == 0 else text)
    return "\n".join(lines)


_NUMERIC = re.compile(r"-|-?[\d,. ]*\d(e[+-]?\d+)? ?%?|-?inf|nan")


def _numeric(cell: str) -> bool:
    return _NUMERIC.fullmatch(cell) is not None


def columns_of(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, with … where it was cut."""
    if columns_of(text) <= width:
        return text
    cut = text[: width - 1]
    while columns_of(cut) > width - 1:
        cut = cut[:-1]
    return cut + "…"


def shortened_before(text: str, width: int) -> str:
    """The end of ``text`` in at most ``width`` columns, with … if it was cut: the end of a path says most."""
    return shortened(text[::-1], width)[::-1]


def wrapped(text: str, width: int, most: int = 8) -> list[str]:
    """``text`` in lines of at most ``width`` columns, broken at blanks if possible. After ``most`` lines it is cut."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < most - 1 and columns_of(rest) > width:
        end = len(shortened(rest, width)) - 1
        blank = rest.rfind(" ", end // 2, end + 1)
        cut = blank if blank > 0 else end
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*lines, shortened(rest, width)] if rest or not lines else lines


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """Values as a row of blocks; None (not a number) as a cross."""
    finite = [value for value in values if value is not None]
    if not finite:
        return ""
    least, most = min(finite), max(finite)
    if len(values) > width:  # the greatest of each slice, so that a spike does not disappear
        slices = [values[len(values) * k // width : len(values) * (k + 1) // width] for k in range(width)]
        values = [None if None in part else max(v for v in part if v is not None) for part in slices]
    blocks = "▁▂▃▄▅▆▇█"
    span = (most - least) or 1.0
    return "".join("×" if v is None else blocks[min(7, int((v - least) / span * 8))] for v in values)


class Progress:
    """A progress bar on stderr for long work. It prints nothing if stderr is not a terminal."""

    def __init__(self, what: str, total: int | None, unit: str = "") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.on = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + 0.3  # nothing is shown for work that takes no time
        self._shown = False

    def at(self, done: int) -> None:
        now = time.monotonic()
        if not self.on or now < self._next:
            return
        self._next = now + 0.1
        speed = done / (now - self._began) if now > self._began else 0
        amount = f"{human_bytes(done)}" if self.unit == "bytes" else f"{done:,}"
        rate = f", {human_bytes(speed)}/s" if self.unit == "bytes" else ""
        if self.total:
            share = min(1.0, done / self.total)
            filled = int(share * 30)
            bar = "█" * filled + "░" * (30 - filled)
            text = f"{self.what} {bar} {share:4.0%} {amount}{rate}"
        else:
            text = f"{self.what} {amount}{rate}"
        sys.stderr.write(f"\r\x1b[K{shortened(text, shutil.get_terminal_size((100, 24)).columns - 1)}")
        sys.stderr.flush()
        self._shown = True

    def done(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


class Notice:
    """Says on a terminal what it waits for, if that takes long. It prints nothing elsewhere."""

    def __init__(self, text: str, after_s: float = 0.7) -> None:
        self._text = text
        self._timer = threading.Timer(after_s, self._show) if sys.stderr.isatty() else None
        self._shown = False

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        self._shown = True
        sys.stderr.write(f"\r\x1b[K{self._text} …")
        sys.stderr.flush()
