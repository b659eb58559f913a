"""Kept lines -> hypotheses: which exception of a chain is the cause, and what an exception's own words tell."""

from __future__ import annotations

import pytest

from tests.support.logs import said

RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n{what}\n'
MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"
LOOKED_UP = "AttributeError: 'Net' object has no attribute 'weight'"


@pytest.mark.parametrize(
    ("first", "answer"),
    [("KeyError: 'weight'", ("attribute_error", 9)), ("ValueError: bad 'weight'", ("value_error", 3))],
    ids=["it only looked the attribute up", "it failed before"],
)
def test_the_cause_in_a_chain(first: str, answer: tuple[str, int]) -> None:
    assert said(RAISED.format(what=first) + MEANWHILE + RAISED.format(what=LOOKED_UP)) == answer


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("ZorchError: cannot connect to host", "connection_error"),
        ("ShelfError: permission denied", "permission_error"),
        ("ShelfError: it is Tuesday", "runtime_error"),
    ],
)
def test_an_exception_that_no_rule_knows_is_told_by_its_words(what: str, reason: str) -> None:
    assert said(RAISED.format(what=what))[0] == reason
