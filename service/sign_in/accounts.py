"""Service accounts: the tokens that Kubernetes gives to pods, or another issuer to programs.

A token is checked once, and known until it expires or the keys of its issuer change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from service.auth import Who
from service.clock import SYSTEM, Clock
from service.errors import Forbidden, Unauthorised
from service.projects import matches
from service.sign_in.access import Cluster, role_of
from service.sign_in.issuer import issuer_of, looks_like_one
from service.store.tokens import ROLES

_MOST_KNOWN: Final = 10_000


class Accounts:
    """Knows the service accounts of some issuers by their tokens."""

    speaks = True

    def __init__(self, clusters: Iterable[Cluster], clock: Clock = SYSTEM) -> None:
        self._clusters = tuple(clusters)
        self._clock = clock
        self._known: dict[bytes, tuple[Who, Cluster, int]] = {}

    def who(self, secret: str) -> Who | None:
        """Whose token it is; None if it is none of this kind."""
        if not self._clusters or not looks_like_one(secret):
            return None
        digest = hashlib.sha256(secret.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            who, cluster, generation = known
            if generation == cluster.issuer.generation and who.until is not None and self._clock.now() < who.until:
                return who
            del self._known[digest]
        said = issuer_of(secret)
        cluster_of = {one.issuer.url: one for one in self._clusters}
        if said not in cluster_of:
            raise Unauthorised(
                "the token is of an issuer that is not known here", remedy="see accounts in the file of --sign-in"
            )
        cluster = cluster_of[said]
        claims = cluster.issuer.claims(secret, cluster.audience)
        who = _who(cluster, claims)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[digest] = who, cluster, cluster.issuer.generation
        return who

    def holds(self, who: Who) -> bool:
        """Nobody can take such a token back: it holds until it expires."""
        return who.until is not None and not who.session and self._clock.now() < who.until

    async def refresh(self) -> None:
        for one in self._clusters:
            await one.issuer.refresh()


def _who(cluster: Cluster, claims: dict[str, Any]) -> Who:
    subject: str = claims["sub"]
    found = role_of(cluster.allow, lambda pattern: matches(subject, (pattern,)), _namespace(claims))
    if found is None:
        raise Forbidden(
            f"{subject!r} may not use this service", remedy="let it in: an entry of accounts in the file of --sign-in"
        )
    role, grant = found
    projects = None if grant.everything else grant.projects
    return Who(subject, ROLES[role], grant=grant, projects=projects, until=float(claims["exp"]))


def _namespace(claims: dict[str, Any]) -> str | None:
    """The namespace of an account of Kubernetes, from its name."""
    parts = str(claims["sub"]).split(":")
    return parts[2] if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4 else None
