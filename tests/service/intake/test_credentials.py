"""Tokens as the clients of each protocol show them, and tenants."""

from __future__ import annotations

import base64

import pytest

from service.auth import Who
from service.errors import BadName, Forbidden
from service.intake.protocols import credentials
from service.intake.protocols.requests import Head


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer dgn_a", "Bearer dgn_a"),
        ("Splunk dgn_a", "Bearer dgn_a"),
        (f"Basic {packed('anybody:dgn_a')}", "Bearer dgn_a"),
        (f"basic {packed(':dgn_a')}", "Bearer dgn_a"),
        (f"ApiKey {packed('id:dgn_a')}", "Bearer dgn_a"),
        ("ApiKey dgn_a", "Bearer dgn_a"),
        ("Basic dgn_a", "Basic dgn_a"),
        (f"Basic {packed('dgn_a')}", "Basic dgn_a".replace("dgn_a", packed("dgn_a"))),
        ("Basic \xff", "Basic \xff"),
        ("Splunk", "Splunk"),
        (None, None),
    ],
)
def test_a_secret_is_found_where_the_client_puts_it(header: str | None, expected: str | None) -> None:
    assert credentials.bearer(header) == expected


def test_the_tenant_is_a_project_of_the_token() -> None:
    who = Who("shipper", frozenset({"ingest"}), projects=("apes", "bees"))
    assert who.named("run7") == "apes~run7"
    assert who.within("bees").named("run7") == "bees~run7"
    assert Who("admin", frozenset()).within("bees").named("run7") == "bees~run7"
    with pytest.raises(Forbidden):
        who.within("cats")
    with pytest.raises(Forbidden):
        who.within("bees").named("apes~run7")


@pytest.mark.parametrize("name", ["a~b", "../a", "a b", "\n"])
def test_no_other_text_is_a_tenant(name: str) -> None:
    with pytest.raises(BadName):
        Who("admin", frozenset()).within(name)


def test_a_push_is_of_one_tenant() -> None:
    assert credentials.tenant(Head({}, {"x-scope-orgid": "apes"})) == "apes"
    assert credentials.tenant(Head({}, {"x-scope-orgid": ""})) is None
    with pytest.raises(BadName, match="one tenant"):
        credentials.tenant(Head({}, {"x-scope-orgid": "apes|bees"}))
