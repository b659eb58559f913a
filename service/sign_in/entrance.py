"""All who come in by something else than a token of ours, for one service."""

from __future__ import annotations

import asyncio
from typing import Final

from service.auth import Others
from service.settings import Settings
from service.sign_in import access
from service.sign_in.accounts import Accounts
from service.sign_in.people import People, Sessions

_LOOK_S: Final = 2.0


class Entrance:
    """``people`` is None if nobody signs in at a provider."""

    def __init__(
        self, people: People | None = None, sessions: Sessions | None = None, accounts: Accounts | None = None
    ) -> None:
        self.people, self.sessions, self._accounts = people, sessions, accounts

    @classmethod
    def of(cls, settings: Settings) -> Entrance:
        """As the file of ``--sign-in`` says."""
        if settings.sign_in is None:
            return cls()
        found = access.load(settings.sign_in)
        sessions = Sessions()
        people = People(found.people, sessions) if found.people is not None else None
        return cls(people, sessions, Accounts(found.clusters))

    @property
    def others(self) -> tuple[Others, ...]:
        return tuple(one for one in (self.sessions, self._accounts) if one is not None)

    async def run(self) -> None:
        """Keep the keys of all issuers fresh, for ever."""
        fetching = [one for one in (self.people, self._accounts) if one is not None]
        while fetching:
            await asyncio.gather(*(one.refresh() for one in fetching))
            await asyncio.sleep(_LOOK_S)
