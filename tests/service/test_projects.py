"""What a token may name: what it is narrowed to by whose log it sends."""

from __future__ import annotations

import pytest

from service.projects import EVERYTHING, Grant

ALL = Grant(users=("*",), namespaces=("*",), nodes=("gpu-*",))


@pytest.mark.parametrize(
    ("labels", "users", "namespaces"),
    [
        ({}, ("*",), ("*",)),
        ({"cluster": "alps"}, ("*",), ("*",)),
        ({"user": "kim"}, ("kim",), ("*",)),
        ({"user": "kim", "namespace": "ml"}, ("kim",), ("ml",)),
        ({"user": "*"}, (), ("*",)),
        ({"namespace": "m?"}, ("*",), ()),
        ({"namespace": "[ml]*"}, ("*",), ()),
    ],
)
def test_a_label_can_only_narrow(labels: dict[str, str], users: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
    narrow = ALL.narrowed(labels)
    assert (narrow.users, narrow.namespaces, narrow.nodes) == (users, namespaces, ALL.nodes)


def test_a_label_makes_nothing_possible() -> None:
    assert Grant(users=("ml-*",)).narrowed({"user": "root", "namespace": "ml"}) == Grant()
    assert EVERYTHING.narrowed({"user": "kim"}) == EVERYTHING
