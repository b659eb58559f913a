"""How many strangers may wait at a door."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from service.intake.sockets.listener import Connection, Listener
from service.net.crowd import Crowd, place_of
from service.settings import Settings
from service.telemetry import Telemetry


@dataclass(eq=False)
class Waiting:
    address: str
    since: float = field(default_factory=time.monotonic)
    answering: bool = False
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


def crowd(proxies: str = "") -> tuple[Crowd, list[str]]:
    refused: list[str] = []
    return Crowd(10, 3, proxies, lambda: refused.append("")), refused


def old(address: str) -> Waiting:
    return Waiting(address, time.monotonic() - 10)


def test_the_oldest_of_an_address_makes_room_for_a_newcomer_from_there() -> None:
    here, refused = crowd()
    other, mine = old("10.0.0.9"), [old("10.0.0.1") for _ in range(3)]
    for one in (other, *mine, Waiting("10.0.0.1")):
        assert here.enter(one)
    assert ([one.dropped for one in mine], other.dropped, len(refused)) == ([True, False, False], False, 1)


def test_who_has_just_come_stays_until_there_are_four_times_as_many() -> None:
    here, _ = crowd()
    mine = [Waiting("10.0.0.1") for _ in range(12)]
    assert all(here.enter(one) for one in mine)
    assert not any(one.dropped for one in mine)
    assert here.enter(Waiting("10.0.0.1"))
    assert [one.dropped for one in mine] == [True, *[False] * 11]


def test_many_addresses_with_few_each_are_too_many_in_all() -> None:
    """An address that had too many by itself was once not counted with the others: ten addresses had ten times the room."""
    here, _ = crowd()
    for number in range(200):
        here.enter(Waiting(f"10.0.0.{number % 20}"))
    assert len(here) <= 40


def test_what_is_being_answered_stays_and_newcomers_are_turned_away() -> None:
    here, _ = crowd()
    busy = [Waiting(f"10.0.{number}.1", answering=True) for number in range(40)]
    assert all(here.enter(one) for one in busy)
    assert not here.enter(Waiting("10.1.0.1", answering=True))
    assert not any(one.dropped for one in busy)


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)  # fmt: skip
def test_the_addresses_beside_one_of_ipv6_are_one_place(first: str, second: str, one: bool) -> None:
    here, _ = crowd()
    mine = [old(first) for _ in range(3)]
    for waiting in (*mine, Waiting(second)):
        here.enter(waiting)
    assert mine[0].dropped is one


def test_the_address_of_a_proxy_stands_for_many() -> None:
    here, refused = crowd("10.0.0.0/24")
    for _ in range(10):
        here.enter(old("10.0.0.1"))
    assert (len(here), refused) == (10, [])


def test_the_ports_of_other_protocols_count_the_addresses_beside_one_of_ipv6_together() -> None:
    parts = SimpleNamespace(settings=Settings(most_strangers_address=3), telemetry=Telemetry())
    port: Any = Listener("syslog", 0, None, Any, parts)  # type: ignore[arg-type]

    def enter(address: str) -> bool:
        if port._make_room(address):
            rest: Any = (None,) * 4
            port._open[Connection(*rest, parts, None, address, place_of(address), None)] = None  # type: ignore[arg-type]
            return True
        return False

    assert [enter(f"2001:db8::{number}") for number in range(1, 5)] == [True, True, True, False]
    assert enter("2001:db8:0:1::1")
