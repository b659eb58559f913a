"""The guard: what makes one cached verdict right for every line of a shape."""

from __future__ import annotations

import re
from typing import Any

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diagnose.knowledge.rules import load
from diagnose.matching.shapes import letters, needs_confirmation, relaxed, sensitivity, shape, steady
from tests.conftest import examples
from tests.support.strategies import bodies, patterns, siblings


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


@pytest.mark.parametrize(
    "pattern",
    [
        r"loss[:=] ?([-+.\dEe]+|nan|inf)",
        r"iteration +(\d+)/ *\d+ \|",
        r"grad_norm[^=:]*[=:] ?(?:\{[^}]*: )?([-+.\dEe]+)",
        r"\bloss.*?: ([\d.]+)\b",
        r"(?:^|,)step ?= ?(\d+)$",
        r"x(\w+)",
    ],
)
def test_steady(pattern: str) -> None:
    assert steady(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\d+) samples",  # may begin inside of a run
        r"loss.*(\d+)",  # the first takes all but one digit
        r"loss.*?(\d+)",
        r"loss (\d+?)",
        r"loss (\d)",
        r"loss (\d{1,3})",
        r"loss ([1-9]+)",
        r"loss (\d+)5",
        r"loss (?:\d+,?)+",
        r"loss (\d+)\B",
        r"loss (?=\d)(\d+)",
        r"(loss) \1",
        r"loss (\d+)+",
        r"(?:loss)?",
        "é (.)",
    ],
)
def test_unsteady(pattern: str) -> None:
    assert not steady(pattern)


def pieces(pattern: str, body: bytes, engine: Any) -> list[tuple[bytes, bytes]] | None:
    """What a search finds and captures: the shape before it, and its own. None where there is nothing."""
    found = engine.search(pattern.encode(), body)
    if found is None:
        return None
    spans = [found.span(group) for group in range(found.re.groups + 1)]
    assert all(
        not re.search(rb"[0-9]{2}|[\x80-\xff]{2}", body[max(at - 1, 0) : at + 1]) for span in spans for at in span if at > 0
    )
    return [(shape(body[:start]), shape(body[start:end])) if start >= 0 else (b"", b"") for start, end in spans]


# Patterns of the kind that can be proved, with groups: what random ones of the other tests hardly ever are.
_HEADS = st.sampled_from(["a", "b", "loss", " ", ":", "=", r"\.", "-", "e", "nan", r"\s", r"[ :=]", r"\b[ab]", "^a"])
_LOOPS = st.sampled_from(
    [
        r"\d+",
        r"\d*",
        r"[\d.]+",
        r"[-+.\dEe]+",
        r"\w+",
        r"\S*",
        ".*",
        ".*?",
        r"[^:]*?",
        r"[^=]+",
        r"[\x80-\xff]+",
        r"\D*",
        "[a-e]?",
        " *",
    ]
)


def _steady_parts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.tuples(
        inner, st.sampled_from(["({})", "({})", "(?:{})?", "({})?", "(?:{})+", "(?:{})*?", "({}|nan)", r"(?:{}|\b|x)"])
    )
    return st.lists(inner | grouped.map(lambda pair: pair[1].format(pair[0])), min_size=1, max_size=4).map("".join)


steady_patterns = (
    st.tuples(_HEADS, st.recursive(_HEADS | _LOOPS, _steady_parts, max_leaves=8), st.sampled_from(["", "", "$", r"\b"]))
    .map("".join)
    .filter(steady)
)


@settings(max_examples=examples(200))
@given(steady_patterns | patterns.map(lambda text: text.replace("(?:", "(")), bodies, st.data())
def test_a_steady_pattern_captures_the_same_pieces_of_all_lines_of_a_shape(
    pattern: str, body: bytes, data: st.DataObject
) -> None:
    assume(steady(pattern))
    other = data.draw(siblings(body))
    for engine in (re, regex):
        assert pieces(pattern, body, engine) == pieces(pattern, other, engine)


def test_numbers_of_few_rules_are_read_line_by_line() -> None:
    """A rule of which the place of a number depends on how long other numbers are is asked in Python, several times slower."""
    slow = {rule.id for rule in load().rules for _, pattern in rule.metrics if not steady(pattern) and sensitivity(pattern)}
    assert slow == {"mllog-metric", "rich-bar"}
