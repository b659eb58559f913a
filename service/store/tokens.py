"""Tokens. Only their hashes are stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, insert, select, update

from service.errors import BadName, Conflict, Unknown
from service.projects import PROJECT, Grant
from service.store import tables as t

ROLES = {
    "ingest": frozenset({"ingest"}),
    "node": frozenset({"ingest"}),
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "admin": frozenset({"ingest", "read", "operate", "admin"}),
}
"""role -> what it may do; ``node`` is the role of a node's own log sender, which may write in the name of its kernel"""
_MOST_PATTERNS, _LONGEST_PATTERN = 100, 200
_LONGEST_PROJECT = 60
_PREFIX, _BYTES = "dgn_", 32
_LENGTH = len(_PREFIX) + len(secrets.token_urlsafe(_BYTES))


@dataclass(frozen=True, slots=True)
class Token:
    """One token, without its secret."""

    name: str
    role: str
    hash: str
    quota: int | None
    created: float
    expires: float | None
    revoked: float | None
    binding: dict[str, Any] | None = None

    @property
    def grant(self) -> Grant:
        """What it may name. An administrator may name everything."""
        said = Grant.of(self.binding or {})
        return replace(said, everything=self.role == "admin", kernel=self.role == "node")

    def valid(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


def hash_of(secret: str) -> str:
    """Tokens have 256 random bits, so a plain hash cannot be reversed by guessing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def is_like_ours(secret: str) -> bool:
    """Whether ``create`` could have made this."""
    return len(secret) == _LENGTH and secret.startswith(_PREFIX)


def create(
    connection: Connection,
    name: str,
    role: str,
    *,
    expires: float | None = None,
    quota: int | None = None,
    grant: Grant | None = None,
) -> str:
    """Make a new token. Its secret is returned here and never again."""
    if not name or len(name) > 100 or not name.isprintable():
        raise BadName("this cannot be the name of a token", where=name[:80], remedy="use up to 100 printable characters")
    if role not in ROLES:
        raise BadName(f"{role!r} is not a role", remedy=f"use one of: {', '.join(ROLES)}")
    binding = check_grant(grant, role) if grant is not None else None
    if connection.execute(select(t.tokens.c.id).where(t.tokens.c.name == name)).first() is not None:
        raise Conflict("there is a token of this name", where=name, remedy="choose another name")
    secret = _PREFIX + secrets.token_urlsafe(_BYTES)
    connection.execute(
        insert(t.tokens).values(
            name=name,
            hash=hash_of(secret),
            role=role,
            quota=quota,
            created=time.time(),
            expires=expires,
            binding=binding,
        )
    )
    return secret


def check_grant(grant: Grant, role: str) -> dict[str, Any] | None:
    """The grant as it is stored. Refuses one that makes no sense."""
    said = grant.as_dict()
    for name, patterns in said.items():
        if not isinstance(patterns, list):
            continue
        for pattern in patterns:
            if not pattern or len(pattern) > _LONGEST_PATTERN or not pattern.isprintable():
                raise BadName(
                    f"this cannot be one of the {name} of a token",
                    where=pattern[:80],
                    remedy=f"use up to {_LONGEST_PATTERN} printable characters",
                )
        if name == "projects":
            for project in patterns:
                check_project(project)
        if len(patterns) > _MOST_PATTERNS:
            raise BadName(f"{len(patterns)} {name} for one token", remedy=f"name at most {_MOST_PATTERNS}; * and ? are allowed")
    if role == "node" and not grant.nodes:
        raise BadName("a token of the role node is for no node", remedy="name its nodes: --node 'gpu-*'")
    return said or None


def check_project(project: str) -> None:
    if not (0 < len(project) <= _LONGEST_PROJECT) or not re.fullmatch(PROJECT, project):
        raise BadName(
            "this is not the name of a project",
            where=project[:80],
            remedy=f"use up to {_LONGEST_PROJECT} letters, digits and _ . -, beginning with a letter, a digit or _",
        )


_c = t.tokens.c
_ALL = select(_c.name, _c.role, _c.hash, _c.quota, _c.created, _c.expires, _c.revoked, _c.binding)


def listed(connection: Connection) -> list[Token]:
    """All tokens, oldest first."""
    return [Token(*row) for row in connection.execute(_ALL.order_by(_c.created, _c.id))]


def found(connection: Connection, digest: str) -> Token | None:
    """The token whose secret has this digest."""
    row = connection.execute(_ALL.where(_c.hash == digest)).first()
    return Token(*row) if row is not None else None


def revoke(connection: Connection, name: str) -> None:
    """Make it invalid."""
    done = connection.execute(
        update(t.tokens).where(t.tokens.c.name == name, t.tokens.c.revoked.is_(None)).values(revoked=time.time())
    )
    if not done.rowcount:
        raise Unknown("there is no such valid token", where=name, remedy="diagnose tokens list shows them")
