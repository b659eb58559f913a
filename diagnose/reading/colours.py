r"""Lines with colours whose escape byte was lost or spelled out -> lines without: ``^[[31m``, ``#033[31m``, ``\x1b[31m``,
``[31m``.

``cat -v`` and editors write the escape as ``^[``, syslog as ``#033``, JSON that was escaped twice as ``\u001b``. Copies from a
terminal, and many web pages, drop it. The spelled forms are sure. The bare form counts only if it can be a colour, and only in
a source that also resets colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPELLED = re.compile(
    rb"(?:\^\[|#033|(?<!\\)\\++(?:x1[bB]|u001[bB]|0?33|e)|\xe2\x90\x9b|\xe2\x86\x90|\xef\xbf\xbd)\[[0-9;?]{0,20}[A-HJKSTfhlmnsu]"
)
_SIGNS = (b"^[", b"#033", b"\\", b"\xe2\x90\x9b", b"\xe2\x86\x90", b"\xef\xbf\xbd")
"""one of these stands in what ``_SPELLED`` finds: to look for them is much faster"""
_CODE = rb"(?:0?[0-9]|2[1-9]|[39][0-7]|4[0-79]|39|10[0-7]|[345]8;5;[0-9]{1,3}|[345]8;2(?:;[0-9]{1,3}){3})"
_BARE = re.compile(rb"\[(?:" + _CODE + rb"(?:;" + _CODE + rb"){0,5})?m|\[K")
_RESETS = (b"[0m", b"[m", b"[39m", b"[49m", b"[22m", b"[0;0m")


def coloured(line: bytes) -> str:
    """Which form stands in ``line``: ``spelled``, ``bare``, or empty."""
    if b"[" not in line or (b"m" not in line and b"[K" not in line):
        return ""
    if _has(line, _SIGNS) and _SPELLED.search(line):
        return "spelled"
    if b"m" in line and b"\x1b" not in line and _has(line, _RESETS) and len(_BARE.findall(line)) >= 2:
        return "bare"
    return ""


def _has(line: bytes, signs: Iterable[bytes]) -> bool:
    for sign in signs:  # noqa: SIM110 - any() takes twice as long, and this is asked of each line
        if sign in line:
            return True
    return False


def bleached(line: bytes, form: str) -> bytes:
    """``line`` without the colours of that form."""
    return (_SPELLED if form == "spelled" else _BARE).sub(b"", line) if b"[" in line else line
