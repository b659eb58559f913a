"""What shippers show instead of a bearer's token, and the tenant that they send for.

Each protocol's clients can say a secret in their own way only. It is one of our tokens all the same, with its role, projects
and bindings.
"""

from __future__ import annotations

import base64
import binascii

from service.errors import BadName
from service.intake.protocols.requests import Head

TENANT = "x-scope-orgid"
"""the header of Loki, Mimir and their clients"""


def bearer(authorization: str | None) -> str | None:
    """The same header with a bearer's token, if it shows one in another way. Else unchanged.

    ``Basic``: the password is the token, whatever the user is called. ``ApiKey``: that of Elasticsearch, the part behind the
    colon, or the token itself. ``Splunk``: that of an event collector.
    """
    scheme, _, rest = (authorization or "").partition(" ")
    rest = rest.strip()
    match scheme.lower():
        case "splunk":
            secret: str | None = rest
        case "basic":
            secret = _behind_colon(rest)
        case "apikey":
            secret = _behind_colon(rest) or rest
        case _:
            return authorization
    return f"Bearer {secret}" if secret else authorization


def _behind_colon(encoded: str) -> str | None:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return text.partition(":")[2] or None


def tenant(head: Head) -> str | None:
    """The project that the header names. Loki's own form for several tenants is for reading only."""
    named = head.headers.get(TENANT)
    if named and "|" in named:
        raise BadName("one push is of one tenant", where=TENANT, remedy="send each tenant's lines in a push of their own")
    return named or None
