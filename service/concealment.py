"""Secrets out of raw log text, line by line as in the kept log, so that a line keeps its number."""

from __future__ import annotations

import re

from diagnose.agent.redaction import redact

_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:.{0,16384}?-----END [A-Z0-9 ]{0,40}-----|.{0,16384}\Z)?",
    re.DOTALL,
)


def conceal(data: bytes) -> bytes:
    """``data`` without secrets, and with as many lines. A private key stands on many: each of them becomes a placeholder."""
    data = _KEY.sub(lambda found: b"\n".join([b"<private_key>"] * (found[0].count(b"\n") + 1)), data)
    return b"\n".join(_concealed(line) for line in data.split(b"\n"))


def _concealed(line: bytes) -> bytes:
    text = line.decode("utf-8", "replace")
    told = redact(text).text
    return line if told == text else " ".join(told.splitlines()).encode() if "\n" in told else told.encode()
