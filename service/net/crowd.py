"""Who has not said yet who they are: how many there may be, in all and at one address. The oldest make room for a newcomer."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

_FRESH_S = 2.0
"""a younger one is not closed in favour of another one: what it has to say is on the way"""
_CROWDED = 4
"""beyond so many times the limit it is closed all the same"""


class Stranger(Protocol):
    """A connection."""

    @property
    def address(self) -> str: ...

    @property
    def since(self) -> float:
        """When it came."""
        ...

    @property
    def answering(self) -> bool:
        """Whether something is being answered: then it stays."""
        ...

    def drop(self) -> None: ...


class Crowd:
    """Strangers, the oldest first."""

    def __init__(self, most: int, most_at_address: int, proxies: str, refused: Callable[[], None]) -> None:
        """``proxies``: the number of connections from there is not bounded."""
        self._most, self._most_at_address = most, most_at_address
        self._proxies = Proxies(proxies)
        self._refused = refused
        self._here: dict[Stranger, str] = {}
        """and where each comes from"""
        self._at: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._here)

    def __contains__(self, one: Stranger) -> bool:
        return one in self._here

    def enter(self, one: Stranger) -> bool:
        """A newcomer. False: there are too many."""
        place = place_of(one.address)
        self._here[one] = place
        self._at[place] += 1
        here = 0 if one.address in self._proxies else self._at[place]
        crowded = here > _CROWDED * self._most_at_address or len(self._here) > _CROWDED * self._most
        if here > self._most_at_address:
            return self._drop(place, crowded)
        if len(self._here) > self._most:
            return self._drop(None, crowded)
        return True

    def leave(self, one: Stranger) -> None:
        """It has said who it is, or has gone."""
        place = self._here.pop(one, None)
        if place is not None:
            self._at[place] -= 1
            if not self._at[place]:
                del self._at[place]

    def _drop(self, place: str | None, crowded: bool) -> bool:
        """Close the oldest (of one place), which would have said something by now if it wanted to. False: there is none to
        close, and no room.
        """
        wanted = (one for one, where in self._here.items() if not one.answering and place in (None, where))
        idle = next(wanted, None)
        if idle is None:
            return not crowded
        if crowded or time.monotonic() - idle.since > _FRESH_S:
            self._refused()
            idle.drop()
            self.leave(idle)
        return True


class Proxies:
    """Networks whose addresses stand for many."""

    def __init__(self, told: str) -> None:
        self._networks = [ipaddress.ip_network(one.strip()) for one in told.split(",") if one.strip()]

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


def place_of(address: str) -> str:
    """Whoever has one address of IPv6 has the 2^64 beside it."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.packed[:8].hex()
