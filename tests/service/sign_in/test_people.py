"""The way to a provider and back, with a provider that can lie; and sessions that end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from service.errors import Forbidden, Unauthorised, Unavailable
from service.sign_in import access
from service.sign_in.people import Arrived, People, Sessions
from tests.support.issuer import SECRET, Provider
from tests.support.live import Hands

BACK = "http://127.0.0.1:8321/ui/sign-in/back"
FILE = """
people:
  issuer: {url}
  client_id: diagnose
  secret_file: secret
  session: 1h
  allow:
    - {{group: admins, role: admin}}
    - {{group: 'ml*', role: operate, projects: [vision]}}
    - {{group: ml-speech, role: operate, projects: [speech]}}
    - {{group: ml, role: read, projects: [maths]}}
"""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as made:
        yield made


class Way:
    """A browser that goes to the provider and comes back."""

    def __init__(self, provider: Provider, folder: Path) -> None:
        (folder / "sign-in.yaml").write_text(FILE.format(url=provider.url))
        (folder / "secret").write_text(f"{SECRET}\n")
        found = access.load(folder / "sign-in.yaml").people
        assert found is not None
        self.hands = Hands()
        self.sessions = Sessions(self.hands.clock)
        self.people = People(found, self.sessions, self.hands.clock)
        self.provider = provider

    async def arrive(self, cookie: str | None = None, **said: str) -> Arrived:
        await self.people.refresh()
        begun = self.people.begin(BACK, "jobs?q=x")
        return await self.people.arrive({**self.provider.visit(begun.address), **said}, cookie or begun.cookie)

    def come(self, cookie: str | None = None, **said: str) -> Arrived:
        return asyncio.run(self.arrive(cookie, **said))


@pytest.fixture
def way(provider: Provider, tmp_path: Path) -> Way:
    return Way(provider, tmp_path)


def test_who_signs_in_has_the_role_and_the_projects_of_the_first_group_that_fits(way: Way) -> None:
    arrived = way.come()
    who = way.sessions.who(arrived.secret)
    assert who is not None
    assert (arrived.target, arrived.name) == ("jobs?q=x", "kim@example.org")
    assert (who.name, set(who.may), who.projects) == ("kim@example.org", {"read", "operate"}, ("vision",))


@pytest.mark.parametrize(
    ("groups", "may", "projects"),
    [
        (["ml-speech"], {"read", "operate"}, ("vision", "speech")),
        (["ml-speech", "admins"], {"ingest", "read", "operate", "admin"}, None),
        (["others", 7, "mlx"], {"read", "operate"}, ("vision",)),
    ],
)
def test_groups_of_one_role_add_their_projects(way: Way, groups: list[Any], may: set[str], projects: Any) -> None:
    way.provider.person["groups"] = groups
    who = way.sessions.who(way.come().secret)
    assert who is not None
    assert (set(who.may), who.projects) == (may, projects)


@pytest.mark.parametrize("groups", [[], ["others"], "admins", {"admins": 1}, None])
def test_who_is_in_no_group_is_not_let_in(way: Way, groups: Any) -> None:
    way.provider.person["groups"] = groups
    with pytest.raises(Forbidden, match="is in no group"):
        way.come()


def test_groups_of_the_token_come_before_those_that_are_asked_for(way: Way) -> None:
    way.provider.lies.claims = {"groups": [], "email": "kim@example.org"}
    with pytest.raises(Forbidden):
        way.come()


@pytest.mark.parametrize(
    ("verified", "name"), [(False, "1"), ("false", "1"), (None, "1"), (True, "kim@example.org"), ("true", "kim@example.org")]
)
def test_an_address_that_was_not_verified_is_not_the_name(way: Way, verified: Any, name: str) -> None:
    """Some providers say so with a text."""
    way.provider.person["email_verified"] = verified
    assert way.come().name == name


STRANGER = ECKey.generate_key("P-256", {"use": "sig", "kid": "first", "alg": "ES256"})


@pytest.mark.parametrize(
    ("claims", "by", "why"),
    [
        ({"nonce": "another"}, None, "another sign-in"),
        ({"nonce": None}, None, "another sign-in"),
        ({"aud": "another"}, None, "aud"),
        ({"aud": ["diagnose", "another"]}, None, "another program"),
        ({"aud": ["diagnose", "another"], "azp": "another"}, None, "another program"),
        ({"iss": "https://login.example.org"}, None, "iss"),
        ({"exp": 1}, None, "expired"),
        ({"exp": None}, None, "exp"),
        ({"sub": None}, None, "sub"),
        ({"sub": ""}, None, "sub"),
        ({"sub": "a\nb"}, None, "names nobody"),
        ({}, STRANGER, "signature"),
    ],
)
def test_an_answer_that_is_not_for_this_sign_in_is_refused(way: Way, claims: Any, by: Any, why: str) -> None:
    way.provider.lies.claims, way.provider.lies.by = claims, by
    with pytest.raises(Unauthorised) as refused:
        way.come()
    assert why in refused.value.what


def test_who_comes_back_must_have_set_out_in_this_browser_and_lately(way: Way) -> None:
    async def walk() -> None:
        await way.people.refresh()
        mine, other = way.people.begin(BACK, ""), way.people.begin(BACK, "")
        said = way.provider.visit(mine.address)
        head, _, seal = mine.cookie.partition(".")
        for cookie in (None, "", "x.y", other.cookie, f"{head}x.{seal}", f"{head}.{seal[:-2]}"):
            with pytest.raises(Unauthorised, match="not begun in this browser"):
                await way.people.arrive(said, cookie)
        for wrong in ({"state": ""}, {"state": "x"}):
            with pytest.raises(Unauthorised, match="not begun in this browser"):
                await way.people.arrive({**said, **wrong}, mine.cookie)
        way.hands.passed = 601
        with pytest.raises(Unauthorised, match="too long ago"):
            await way.people.arrive(said, mine.cookie)
        way.hands.passed = 0
        await way.people.arrive(said, mine.cookie)
        with pytest.raises(Unauthorised, match="does not take the code"):
            await way.people.arrive(said, mine.cookie)

    asyncio.run(walk())


def test_what_the_provider_refuses_is_told_and_another_one_is_not_believed(way: Way) -> None:
    with pytest.raises(Unauthorised, match="did not sign you in: no, thanks"):
        way.come(error="access_denied", error_description="no, thanks\x1b")
    with pytest.raises(Unauthorised, match="another provider"):
        way.come(iss="https://login.example.org")


def test_a_provider_that_calls_itself_otherwise_is_not_used(way: Way) -> None:
    way.provider.lies.issuer = "https://login.example.org"
    with pytest.raises(Unavailable, match="not heard of"):
        way.come()


def test_a_session_ends_by_its_time_and_when_its_owner_signs_out(way: Way) -> None:
    first, second = way.come().secret, way.come().secret
    who, other = way.sessions.who(first), way.sessions.who(second)
    assert who is not None
    assert other is not None
    way.sessions.end(first)
    with pytest.raises(Unauthorised, match="ended"):
        way.sessions.who(first)
    assert (way.sessions.holds(who), way.sessions.holds(other)) == (False, True)
    way.hands.passed = 3601
    with pytest.raises(Unauthorised, match="ended"):
        way.sessions.who(second)
    assert not way.sessions.holds(other)
    assert way.sessions.who("dgn_token") is None
