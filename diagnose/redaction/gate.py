"""Which lines could hold a secret or a name at all: one scan by Hyperscan instead of twenty searches.

``text`` knows exactly what to take out, and is slow. Nearly all lines of a log have nothing of the kind. Each pattern here is a
piece that a search of ``text`` cannot do without, so a line with none of them stays as it is. The tests check that ``text``
changes nothing in a line that the gate lets pass.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

from diagnose import cache
from diagnose.redaction.known import KNOWN

_SINGLEMATCH: Final = 8

_SURE: Final = (
    "pass password passwd passphrase passcode pwd secret apikey secretkey accesskey authtoken accesstoken authorization sshpass"
    " pgpassword"
).split()
"""after these names any value may be a secret"""
_OPENS: Final = (
    "access account admin anthropic api app auth bearer bot client csrf deploy encryption gh git github gitlab hf hub"
    " huggingface id login master ngc oauth openai personal private refresh registry secret security service session"
    " shared signing slack subscription user vault wandb xsrf"
).split()
"""also after "key" or "token" that follows one of these words"""
_LIKELY: Final = ["token", "jwt", "webhook"]
"""after these names, values of letters and digits"""
_MAYBE: Final = "key auth credential credentials cookie sas sig signature pat dsn session".split()
"""after these names, values that look random"""
_LATER: Final = ["tokens", "base", "id"]
"""the last words of longer names: access_tokens, secret_key_base, access_key_id"""

_GAP = "[0-9_. -]*"
_OPENED = f"(?:{'|'.join(_OPENS)}){_GAP}(?:key|token)"
_LONGER = f"(?:(?:access|auth){_GAP}tokens|access{_GAP}key{_GAP}id|secret{_GAP}key{_GAP}base|{_OPENED})"
_EVERY = [*_SURE, *_LIKELY, *_MAYBE, *_LATER]
_INNER = f"(?:[a-zA-Z0-9](?:{'|'.join(map(str.title, _EVERY))})|[a-z0-9](?:{'|'.join(map(str.upper, _EVERY))}))"
"""the last word of a name such as myApiKey"""
_NUMBERED = "[0-9_.-]*"
_IS = r"""\\{0,3}["']?[ \t]*(?:=>|:=|={1,3}|:|\.{3,}[ \t])[ \t]*"""
_THEN = r"""["']?,?[ \t]+"""
_FLAG = r"--?(?:[A-Za-z][\w.-]*[_.0-9-])?"
_ANY = r"[^\s,;)\]}]"
_SCHEME = r"""\\{0,3}["']?(?i:bearer|basic|digest|negotiate|token|apikey)[ \t]"""
_SOME = rf"(?:[^ \r\n]{{8}}|{_SCHEME})"
_WORD = "[A-Za-z0-9]"
_RANDOM = (
    rf"(?:[^ \r\n]*(?:{_WORD}{{6}}[0-9]|[0-9]{_WORD}{{6}}|{_WORD}{{7}}[a-z][A-Z]|[a-z][A-Z]{_WORD}{{7}}"
    rf"|{_WORD}{{7}}[A-Z][a-z]|[A-Z][a-z]{_WORD}{{7}})|{_SCHEME})"
)
_BEGINS = r"(?:\b|[_0-9]|\\[nrt])"
_HOMES = r"(?:homes|home[0-9]{0,3}|users|user)(?:[/\\]|%2f)"

_PATTERNS: Final = (
    # A name before a secret, as a word or as the last word of a longer one: HF_TOKEN=, "apiKey":, --password x
    *(
        f"{begins}{name}{_NUMBERED}{between}{value}"
        for begins, between in ((_BEGINS, _IS), (_FLAG, _THEN))
        for name, value in (
            (f"(?i:{'|'.join(_SURE)})", _ANY),
            (f"(?i:{'|'.join(_LIKELY)})", _SOME),
            (f"(?i:{'|'.join(_MAYBE)})", _RANDOM),
        )
    ),
    f"(?:(?i:{_LONGER})|{_INNER}){_NUMBERED}{_IS}{_ANY}",
    rf"-[\w.-]*(?:(?i:{_LONGER})|{_INNER}){_NUMBERED}{_THEN}{_ANY}",
    r"(?i)[?&;](?:sig|signature|key|code|auth|token|x-amz-signature|x-amz-credential|x-goog-signature|x-goog-credential)=",
    r"""(?i)name["']?[ \t]{0,9}[:=].*value["']?[ \t]{0,9}[:=]""",
    r"""(?i)^\s*["']?value["']?[ \t]{0,9}[:=]""",  # its name is in the line before
    # What is known by its form
    *(pattern for _, pattern in KNOWN),
    r"sk-[\w-]{16}",
    r"(?:hooks?/|hooks\.slack\.com/services/)[\w/-]{16}",
    r"(?i)(?:bearer|basic)[ \t]{1,9}[\w.~+/=-]{8}",
    r"""://[^\s/"'<>\\]*@""",
    r"""(?:-u|--user|--proxy-user)[ \t=]{1,4}["']?[\w.@-]{1,64}:[^\s"'@]""",
    r"(?i)(?:wandb|api[ _-]?key|login|password|passwd|token|secret)\b[^\r\n<]*[0-9a-f]{40}",
    r"(?i)cookie:",
    r"PRIVATE KEY",
    # People
    rf"(?i)(?:[/\\]|%2f){_HOMES}",
    r"""(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|UserId)["']?[ \t]{0,9}[=:]|[Ll]ogged in as""",
    r"[A-Za-z0-9._%+-]@[A-Za-z0-9-]+\.",
)
_LONG: Final = r"[A-Za-z0-9+/_-]{40}"
"""a path or a secret in base64; ``text`` looks more closely at these alone"""

_ALL: Final = (*_PATTERNS, _LONG)


class Hit(NamedTuple):
    """A line that may have something to take out."""

    line: int
    """its number, from 0"""
    only_long: bool
    """all that it has is a long word"""


class Gate:
    """The compiled patterns, for one thread."""

    def __init__(self) -> None:
        import hyperscan

        key = cache.key_of(metadata.version("hyperscan"), platform.machine(), *_ALL)
        known = cache.fetch("gate", key)
        try:
            self._database: Any = hyperscan.loadb(known, hyperscan.HS_MODE_BLOCK) if known else None
        except hyperscan.error:  # for another processor
            self._database = None
        if self._database is None:
            self._database = hyperscan.Database()
            self._database.compile(
                expressions=[pattern.encode() for pattern in _ALL],
                ids=[int(pattern == _LONG) for pattern in _ALL],  # one number for all others: one of them is enough
                flags=[_SINGLEMATCH] * len(_ALL),
                elements=len(_ALL),
            )
            cache.store("gate", key, hyperscan.dumpb(self._database))
        self._database.scratch = hyperscan.Scratch(self._database)

    def hits(self, lines: Sequence[bytes]) -> list[Hit]:
        """The lines that must be looked at, in order."""
        found: list[Hit] = []
        seen: set[int] = set()

        def note(pattern: int, start: int, end: int, flags: int, context: object) -> None:
            seen.add(pattern)

        for number, line in enumerate(lines):
            self._database.scan(line, match_event_handler=note)
            if seen:
                found.append(Hit(number, 0 not in seen))
                seen.clear()
        return found


_own = threading.local()


def gate() -> Gate:
    """The gate of this thread. It is compiled once per thread, because two threads must not scan with one."""
    found: Gate | None = getattr(_own, "gate", None)
    if found is None:
        found = _own.gate = Gate()
    return found
