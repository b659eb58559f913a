"""The guard: what makes one cached verdict right for every line of a shape."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from diagnose.shapes import letters, needs_confirmation, relaxed, sensitivity, shape
from tests.strategies import bodies, patterns, siblings


@pytest.mark.parametrize(
    "pattern",
    [
        r"^ *iteration +\d+/ *\d+ \|",
        r"foo.*\d+ms",
        r"rank\d+\b",
        r"\d+\w*",
        r"[0-9a-f]+:[\d.]+",
        r"(?:\d+,? )+x",
        r"\S+:\d+",
        r"(?i)error \S+",
        r"\d+(?:\.\d+)?(?:e[+-]\d+)?",
        r"[-+.\dEe]+|nan",
        r"^[^\[]*\[\d+\]$",
        r"loss=[-+\d]",
        r"(?:^|\W)loss",
        r"\d ",
    ],
)
def test_blind(pattern: str) -> None:
    assert sensitivity(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\d{4}-\d\d", "counts"),
        (r"Xid .*: 79\b", "some digits"),
        (r"[1-9]+", "some digits"),
        (r"a\d ", "counts"),
        (r"\d\d", "counts"),
        (r"foo .+\d+", "in a row"),
        (r"(?:\d+)(?:\d+)", "in a row"),
        (r"(?:\d\d){2}", "counts"),
        (r"\w+\d+", "in a row"),
        (r".{0,80}x", "counts"),
        (r"a(?!b)\d+", "lookaround"),
        (r"(\d+)-\1", "lookaround"),
        (r"\d+\B", "lookaround"),
        ("é", "some non-ASCII"),
        (r"(?:\d+\.?){3}", "in a row"),
        (r"(?:a|\d)(?:b|\d)x", "counts"),
    ],
)
def test_sensitive(pattern: str, why: str) -> None:
    assert any(word in (sensitivity(pattern) or "") for word in (why, "in a row"))


def test_needs_confirmation() -> None:
    assert needs_confirmation(r"a(?<!b)c")
    assert needs_confirmation(r"(a)\1")
    assert needs_confirmation(r"x(?:y|(?=z))")
    assert not needs_confirmation(r"(?P<a>a)+(?:b|c)?")


def test_shape() -> None:
    assert shape(b"a12b 3.5 \xc3\xa9\xc3\xa9x9") == b"a0b 0.0 \x80x0"


@given(patterns, bodies.flatmap(lambda body: st.tuples(st.just(body), siblings(body))))
def test_a_blind_pattern_cannot_tell_siblings_apart(pattern: str, pair: tuple[bytes, bytes]) -> None:
    body, sibling = pair
    assert shape(body) == shape(sibling)
    if sensitivity(pattern) is None:
        expression = regex.compile(pattern.encode())
        assert bool(expression.search(body)) == bool(expression.search(sibling))


@given(patterns, bodies.flatmap(lambda body: st.tuples(st.just(body), siblings(body))))
def test_the_relaxed_pattern_hits_the_shape_of_every_match(pattern: str, pair: tuple[bytes, bytes]) -> None:
    body, sibling = pair
    if regex.search(pattern.encode(), sibling):
        assert regex.search(relaxed(pattern).encode(), body)


@pytest.mark.parametrize(
    ("pattern", "fewest"),
    [
        ("^lane \\d+ of 3$", 6),
        ("^(?:lane|of) \\w+", 2),
        ("^(?:lane)?.*", 0),
        ("^(?:lane)*.*", 0),
        ("^(?:, 'lane[^']*')+$", 4),
        ("^[lane]+$", 0),
        ("^\\s\\w\\d", 0),
    ],
)
def test_letters_that_every_match_must_hold(pattern: str, fewest: int) -> None:
    assert letters(pattern) == fewest
