"""Signs outgoing messages, so that the receiver knows who sent them: HMAC-SHA256, by https://www.standardwebhooks.com.

The signature covers id, time and body. Receivers check it with a library for their language, refuse messages that are older
than a few minutes, and recognise a repeated delivery by its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from diagnose.errors import DiagnoseError

_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64
_TOLERANCE_S = 300.0


def new_secret() -> str:
    """A secret to share with one receiver."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes behind ``whsec_…``."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise DiagnoseError(
            "this secret cannot be used to sign",
            remedy=f"give {_PREFIX} and the base64 of {_SHORTEST} to {_LONGEST} random bytes, or none to have one made",
        )
    return key


def headers(secret: str, message: str, at: float, body: bytes) -> dict[str, str]:
    """The three headers of one delivery. ``message`` is its id, the same for each try."""
    return {
        "webhook-id": message,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": _signature(key_of(secret), message, int(at), body),
    }


def verified(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether one of the signatures in ``headers`` (names in lower case) is ours and fresh."""
    message, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 13) or abs(now - int(stamp)) > _TOLERANCE_S:
        return False
    expected = _signature(key_of(secret), message, int(stamp), body)
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode("utf-8", "replace")) for one in given)


def _signature(key: bytes, message: str, at: int, body: bytes) -> str:
    signed = b"%s.%d.%s" % (message.encode(), at, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
