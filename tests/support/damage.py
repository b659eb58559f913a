"""Bodies that were right, damaged at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

LONGEST = 64 << 10
_TOKENS = (
    b"\x00", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80" * 10, b"\xed\xa0\x80", b"null", b"NaN", b"1e999",
    b"-0", b"[" * 200, b'{"a":' * 200, b"\\ud800", b"\\u0000", b"9" * 5000, b"\n", b"\r\n", b'"', b"{}", b"<165>1 ",
    b"\xdd\xff\xff\xff\xff",
)  # fmt: skip


def damaged(body: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """``body`` after one to six changes."""
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(body))
        to = min(len(body), at + chance.choice((1, 1, 2, 8, 64, 1024)))
        match chance.randrange(7):
            case 0 if body:
                at = min(at, len(body) - 1)
                body = body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
            case 1:
                body = body[:at] + body[to:]
            case 2:
                body = body[:at] + body[at:to] * chance.choice((2, 3, 50)) + body[to:]
            case 3:
                body = body[:at] + chance.choice(_TOKENS) + body[to:]
            case 4:
                body = body[:at] + chance.choice(_TOKENS) + body[at:]
            case 5:
                other = chance.choice(others)
                body = body[:at] + other[chance.randint(0, len(other)) :]
            case _:
                body = body[:at] + chance.randbytes(chance.randint(1, 16)) + body[to:]
    return body[:LONGEST]
