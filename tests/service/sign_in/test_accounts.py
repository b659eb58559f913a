"""Service accounts: whose token is good, and what it may do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from service.errors import Forbidden, Unauthorised, Unavailable
from service.projects import Grant
from service.sign_in import access
from service.sign_in.accounts import Accounts
from tests.support.issuer import Provider
from tests.support.live import Hands

FILE = """
accounts:
  - issuer: {url}
    audience: diagnose
    allow:
      - {{account: kube-system/shipper, role: ingest, namespaces: ['*']}}
      - {{account: 'vision-*/*', role: ingest, projects: [vision], own_namespace: true, jobs: ['vis-*']}}
      - {{subject: 'robot:*', role: read}}
"""


@pytest.fixture
def issuer() -> Iterator[Provider]:
    with Provider() as made:
        yield made


class Door:
    def __init__(self, issuer: Provider, folder: Path) -> None:
        (folder / "sign-in.yaml").write_text(FILE.format(url=issuer.url))
        self.issuer, self.hands = issuer, Hands()
        clusters = access.load(folder / "sign-in.yaml").clusters
        for one in clusters:
            one.issuer._clock = self.hands.clock
            one.issuer._tried = one.issuer._fetched = self.hands.clock.steady() - 1e6
        self.accounts = Accounts(clusters, self.hands.clock)
        self.refresh()

    def refresh(self) -> None:
        asyncio.run(self.accounts.refresh())

    def token(self, account: str = "vision-lab:trainer", **claims: Any) -> str:
        now = int(self.hands.clock.now())
        said = {"sub": f"system:serviceaccount:{account}", "iat": now, "exp": now + 600, **claims}
        return self.issuer.token(**said)


@pytest.fixture
def door(issuer: Provider, tmp_path: Path) -> Door:
    return Door(issuer, tmp_path)


def test_an_account_has_the_role_project_and_grant_of_its_entry(door: Door) -> None:
    who = door.accounts.who(door.token())
    assert who is not None
    grant = Grant(projects=("vision",), jobs=("vis-*",), namespaces=("vision-lab",))
    assert (who.name, set(who.may), who.grant) == ("system:serviceaccount:vision-lab:trainer", {"ingest"}, grant)
    assert who.projects == ("vision",)
    shipper = door.accounts.who(door.token("kube-system:shipper"))
    assert shipper is not None
    assert shipper.grant == Grant(namespaces=("*",))
    robot = door.accounts.who(door.token(sub="robot:7"))
    assert robot is not None
    assert set(robot.may) == {"read"}


@pytest.mark.parametrize("sub", ["system:serviceaccount:default:trainer", "vision-lab:trainer", "robot"])
def test_who_is_on_no_list_is_not_let_in(door: Door, sub: str) -> None:
    with pytest.raises(Forbidden):
        door.accounts.who(door.token(sub=sub))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://kubernetes.default.svc"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"nbf": 1 << 40},
        {"iss": "https://x.y"},
    ],
)
def test_a_token_for_others_or_of_others_is_refused(door: Door, claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthorised):
        door.accounts.who(door.token(**claims))


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_a_token_that_was_not_signed_with_the_key_is_refused(door: Door) -> None:
    head, claims, signature = door.token().split(".")
    public = json.dumps(door.issuer.key.as_dict(private=False)).encode()
    with_public = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{claims}"
    hashed = base64.urlsafe_b64encode(hmac.new(public, with_public.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    mine = encoded({"iss": door.issuer.url, "aud": "diagnose", "exp": 1 << 40, "sub": "robot:1"})
    for forged in (
        f"{encoded({'alg': 'none', 'kid': 'first'})}.{mine}.",
        f"{with_public}.{hashed}",
        f"{head}.{mine}.{signature}",
        f"{head}.{claims}.{signature[:-4]}AAAA",
        f"{head}.{claims}.",
        f"eyJ.{claims}.{signature}",
        f"{head}.eyJ!.{signature}",
        f"{encoded({'alg': 'ES256', 'kid': ['first']})}.{claims}.{signature}",
        f"{encoded({'alg': 'ES256', 'jwk': door.issuer.key.as_dict(private=False)})}.{mine}.{signature}",
        "eyJ" + "A" * 20_000 + ".x.y",
    ):
        with pytest.raises((Unauthorised, Unavailable)):
            door.accounts.who(forged)
    assert door.accounts.who("dgn_token") is None


def test_a_token_is_known_until_it_expires(door: Door) -> None:
    token = door.token()
    who = door.accounts.who(token)
    assert who is not None
    assert door.accounts.who(token) is who
    assert door.accounts.holds(who)
    door.hands.passed = 700
    assert not door.accounts.holds(who)
    with pytest.raises(Unauthorised):
        door.accounts.who(token)


def test_new_keys_are_fetched_once_somebody_uses_them_and_not_more_often(door: Door) -> None:
    old = door.token()
    assert door.accounts.who(old) is not None
    door.issuer.key = ECKey.generate_key("P-256", {"use": "sig", "kid": "second", "alg": "ES256"})
    asked = len(door.issuer.asked)
    new = door.token().split(".")
    renewed = ".".join((encoded({"alg": "ES256", "kid": "second"}), *new[1:]))
    with pytest.raises(Unauthorised):  # the keys were fetched a moment ago
        door.accounts.who(renewed)
    door.hands.passed = 31
    with pytest.raises(Unavailable):
        door.accounts.who(renewed)
    door.refresh()
    door.refresh()
    assert len(door.issuer.asked) == asked + 2
    with pytest.raises(Unauthorised):  # it was signed for another head
        door.accounts.who(renewed)
    with pytest.raises(Unauthorised):  # the old key is gone, and what was known by it too
        door.accounts.who(old)


def test_until_the_keys_are_there_senders_are_told_to_come_again(issuer: Provider, tmp_path: Path) -> None:
    (tmp_path / "sign-in.yaml").write_text(FILE.format(url=issuer.url))
    accounts = Accounts(access.load(tmp_path / "sign-in.yaml").clusters)
    with pytest.raises(Unavailable) as refused:
        accounts.who(issuer.token(sub="robot:1"))
    assert refused.value.retry_after_s == 5
