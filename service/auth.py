"""Authentication: bearer tokens with roles, and how many bytes per second each may send.

A service without any token is open, and must then be bound to loopback: ``check_exposure`` refuses anything else. Where people
sign in at a provider, or service accounts come in, it is never open.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import DiagnoseError
from service.clock import SYSTEM, Clock
from service.errors import BadName, Busy, Forbidden, Refused, Unauthorised
from service.projects import DEFAULT, MARK, NOBODY, PROJECT, Grant, parted, qualified
from service.quotas import Buckets
from service.settings import Settings
from service.store import Store
from service.store import tokens as stored
from service.store.tokens import ROLES, Token, hash_of

ADMIT = "diagnose.admit"
"""where a request has the function to call once its sender is known"""
RIGHT = "right"
"""where such a dependency has the right that it asks for"""
OWNER = "diagnose.owner"
"""where a request has the function that says which user of this machine sent it (None: nobody knows)"""
_ASKED_PER_S, _ASKED_AT_ONCE, _ASKED_S = 10, 4, 2.0
_MOST_WRONG = 10_000


@dataclass(frozen=True, slots=True)
class Who:
    """The sender of a request."""

    name: str
    may: frozenset[str]
    quota: int | None = None
    grant: Grant | None = None
    """what it may name, and for whom it speaks; None: this is not asked"""
    anybody: bool = False
    """no token was needed: somebody on this machine"""
    projects: tuple[str, ...] | None = None
    """what it reads and writes; None: everything"""
    until: float | None = None
    """when it ends, if it is known by something else than a token of ours"""
    session: str = ""
    """which session it is, if it is one"""

    def reads(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def named(self, job: str) -> str:
        """A job by the name that the service knows it by: one that names no project is of the holder's first."""
        own = DEFAULT if self.projects is None else self.projects[0]
        project, name = parted(job) if MARK in job else (own, job)
        if not self.reads(project):
            raise Forbidden(
                f"the token {self.name!r} is for other projects", where=job, remedy="use a token of the job's project"
            )
        return qualified(project, name)

    def within(self, project: str) -> Who:
        """The same sender, for what belongs to one project. Raises Forbidden if it does not have that project."""
        if not re.fullmatch(PROJECT, project):
            raise BadName("this is not the name of a project", where=project[:80], remedy="use letters, digits and _ . -")
        if not self.reads(project):
            raise Forbidden(
                f"the token {self.name!r} is for other projects", where=project, remedy="use a token of that project"
            )
        return replace(self, projects=(project,))


class Others(Protocol):
    """Knows who sends a request by something else than a token of ours."""

    @property
    def speaks(self) -> bool:
        """Whether something may be done on the word of some of them."""

    def who(self, secret: str) -> Who | None:
        """None: it is nothing of that kind. Raises Unauthorised if it is, and is not valid."""

    def holds(self, who: Who) -> bool:
        """Whether ``who`` came in here, and would still be let in."""


class Tokens:
    """The valid tokens, in memory. They are read again regularly, so that what another process has revoked soon ends."""

    def __init__(self, store: Store, settings: Settings, clock: Clock = SYSTEM, others: Sequence[Others] = ()) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._by_hash: dict[str, Token] = {}
        self._by_name: dict[str, Token] = {}
        self._any = True  # until they are read, there may be some
        self._asks = settings.authority == "confirmed"
        self._local = Who("local", ROLES["admin"], grant=NOBODY if self._asks else None, anybody=True)
        self._rates = Buckets(clock)
        self._others = tuple(others)
        self._reading = asyncio.Lock()
        """one reads after the other: what was read earlier must not replace what was read later"""
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._wrong: dict[str, None] = {}
        """hashes that no token has, the oldest first; none will ever have one, as secrets are made by chance"""
        self._questions = Buckets(clock)

    async def refresh(self) -> None:
        async with self._reading:
            found = await self._store.aread(stored.listed)
            self._by_hash = {token.hash: token for token in found}
            self._by_name = {token.name: token for token in found}
            self._any = bool(found)

    async def meet(self, authorization: str | None) -> None:
        """Before ``who``: get to know a token that was made since the tokens were read, so that it counts at once.

        Strangers pay for this: what nobody has made is asked for once, and there are few questions per second. Beyond them a
        new token counts when the tokens are read again.
        """
        secret = _secret(authorization)
        if secret is None or not stored.is_like_ours(secret):
            return
        digest = hash_of(secret)
        if digest in self._by_hash or digest in self._wrong:
            return
        asked = self._asked.get(digest)
        if asked is None:
            if len(self._asked) >= _ASKED_AT_ONCE or self._questions.spend("", 1, _ASKED_PER_S) is not None:
                return
            asked = self._asked[digest] = asyncio.create_task(self._ask(digest))
        await asyncio.wait({asked}, timeout=_ASKED_S)

    async def _ask(self, digest: str) -> None:
        try:
            async with self._reading:
                token = await self._store.aread(lambda connection: stored.found(connection, digest))
                if token is not None:
                    self._by_hash[digest] = self._by_name[token.name] = token
                    self._any = True
                    return
        except (Refused, SQLAlchemyError):  # the database is away: nothing is known about this secret
            return
        finally:
            del self._asked[digest]
        self._wrong[digest] = None
        if len(self._wrong) > _MOST_WRONG:
            del self._wrong[next(iter(self._wrong))]

    @property
    def any_speaks(self) -> bool:
        """Whether some token is enough for something to be done without a person."""
        now = self._clock.now()
        mine = (token.grant.speaks for token in self._by_hash.values() if token.valid(now))
        return any(mine) or any(one.speaks for one in self._others)

    @property
    def open(self) -> bool:
        """Whether no token was ever made. Then the service is open to whoever runs it, and only to them (`sender`).

        To revoke the last token does not open it: that is meant to let fewer in, not all.
        """
        return not self._any and not self._others and self._settings.on_loopback

    def who(self, authorization: str | None) -> Who:
        """The holder of a token."""
        if self.open:
            return self._local
        secret = _secret(authorization)
        if secret is None:
            raise Unauthorised("a token is needed", remedy="send Authorization: Bearer TOKEN; diagnose tokens create makes one")
        for other in self._others:
            found = other.who(secret)
            if found is not None:
                return found
        return self._holder(self._by_hash.get(hash_of(secret)))

    def holder_of(self, name: str) -> Who:
        """The holder of the token of this name, for who cannot show one."""
        return self._local if self.open else self._holder(self._by_name.get(name))

    def _holder(self, token: Token | None) -> Who:
        if token is None or not token.valid(self._clock.now()):
            raise Unauthorised("the token is not valid, or not valid any more", remedy="ask an administrator for a new one")
        grant = token.grant if self._asks or token.binding else None  # a binding always counts
        projects = None if token.grant.everything else token.grant.projects or (DEFAULT,)
        return Who(token.name, ROLES[token.role], token.quota, grant, projects=projects)

    def holds(self, who: Who) -> bool:
        """Whether ``who`` would still be let in. Long-lived requests ask this again and again."""
        if who.anybody:
            return self.open
        if who.until is not None:
            return any(one.holds(who) for one in self._others)
        token = self._by_name.get(who.name)
        return token is not None and token.valid(self._clock.now())

    def limited(self, who: Who) -> bool:
        """Whether ``who`` has a quota."""
        return bool(who.quota if who.quota is not None else self._settings.quota)

    def spend(self, who: Who, size: int) -> None:
        """Take ``size`` bytes from the quota of ``who``. Raises Busy if it is used up."""
        quota = who.quota if who.quota is not None else self._settings.quota
        if not quota:
            return
        wait_s = self._rates.spend(who.name, size, quota)
        if wait_s is not None:
            raise Busy(
                f"the token {who.name!r} has used up its {quota:,} bytes per second",
                remedy="send more slowly, or ask for a larger quota",
                retry_after_s=wait_s,
            )


def _secret(authorization: str | None) -> str | None:
    scheme, _, secret = (authorization or "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret else None


def needs(right: str, shown: Callable[[Request], str | None] | None = None) -> Callable[[Request], Awaitable[Who]]:
    """A dependency for routes that need the right ``right``. ``shown``: finds what the request shows, if not in our own way."""

    async def check(request: Request) -> Who:
        return await holder(request, right, shown(request) if shown is not None else None)

    setattr(check, RIGHT, right)

    return check


def check_runs_the_cluster(who: Who) -> None:
    """Forbidden for who has only projects: nodes, and the service's own numbers, are everybody's."""
    if not who.reads(DEFAULT):
        raise Forbidden(
            f"the token {who.name!r} is for projects only, and this is about the whole cluster",
            remedy=f"use a token that has the project {DEFAULT}, or an administrator's",
        )


async def holder(request: Request, right: str, shown: str | None = None) -> Who:
    """The sender of a request, if it has the right ``right``; else a refusal. ``shown``: as for `sender`."""
    who = await sender(request, shown)
    admit(request)
    if right not in who.may:
        raise Forbidden(f"the token {who.name!r} may not do this", remedy=f"use a token that has the right to {right}")
    return who


async def sender(request: Request, shown: str | None = None) -> Who:
    """Who sent a request. ``shown``: what it shows instead of the header."""
    tokens: Tokens = request.app.state.service.tokens
    await tokens.meet(shown if shown is not None else request.headers.get("authorization"))
    return known_sender(request, shown)


def known_sender(request: Request, shown: str | None = None) -> Who:
    """The same for a token that we have met before."""
    tokens: Tokens = request.app.state.service.tokens
    who = tokens.who(shown if shown is not None else request.headers.get("authorization"))
    owner = request.scope.get(OWNER)
    if who.anybody and owner is not None and not owner():
        raise Unauthorised(
            "the service has no token yet, and is open only to the user of this machine that runs it",
            remedy="ask that user for a token: diagnose tokens create NAME",
        )
    return who


def admit(request: Request) -> None:
    """The sender is known, so its connection is no stranger's any more."""
    told = request.scope.get(ADMIT)
    if told is not None:
        told()


def check_exposure(store: Store, settings: Settings, clock: Clock = SYSTEM) -> None:
    """Refuse to start if other machines can reach the service and it has no token."""
    if settings.on_loopback or settings.sign_in is not None:
        return
    if not any(token.valid(clock.now()) for token in store.read(stored.listed)):
        raise DiagnoseError(
            "other machines could reach the service, and it has no token yet",
            where=f"--host {settings.host}",
            remedy="create one first: diagnose tokens create NAME --role admin",
        )
