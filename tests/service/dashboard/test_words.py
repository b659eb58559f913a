"""Numbers, times and log text as pages show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard import words


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (float("nan"), "–"), (0, "0"), (7, "7"), (999, "999"), (999.96, "1 k"), (1234, "1.23 k"),
     (0.00123, "0.00123"), (5_000_000, "5 M"), (-2500, "-2.5 k"), (1.5e9, "1.5 G")],
)  # fmt: skip
def test_numbers(value: float | None, expected: str) -> None:
    assert words.number(value).replace("\u00a0", " ") == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "–"), (0, "0 s"), (0.3, "0.3 s"), (59, "59 s"), (61, "1 m"), (3600, "1 h"), (11_400, "3 h 10 m"),
     (47 * 3600, "47 h"), (52 * 3600, "2 d 4 h"), (72 * 3600, "3 d")],
)  # fmt: skip
def test_spans(seconds: float | None, expected: str) -> None:
    assert words.span(seconds) == expected


@given(st.text())
def test_nothing_that_acts_is_shown(text: str) -> None:
    shown = words.printable(text)
    assert not any(c != "\t" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0) for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\ufeff")


def test_the_middle_of_a_long_line_is_left_out() -> None:
    shown = words.printable("a" * 10_000 + "end", most=300)
    assert len(shown) < 400
    assert shown.startswith("aaa")
    assert shown.endswith("end")
    assert "9,703 characters" in shown


def test_an_entry_of_the_trail_in_words() -> None:
    entry = {"from": "proposed", "to": "approved", "fence": 2, "result": None, "nodes": [], "was": {"a": 1}, "not_before": 1.5}
    assert words.detail(entry) == 'from proposed, to approved, fence 2, was {"a": 1}, not before 1.5'
    assert words.detail({}) == "–"


def test_a_name_is_parted_behind_signs_only() -> None:
    assert words.parted("arc_challenge") == "arc_<wbr>challenge"
    assert words.parted("<b>/x-y") == "&lt;b&gt;/<wbr>x-<wbr>y"
    assert words.parted("winogrande_") == "winogrande_"


@pytest.mark.parametrize(("part", "expected"), [(0.0, "0 %"), (6.4e-8, "< 0.01 %"), (0.034, "3.4 %"), (0.5, "50 %")])
def test_shares_are_no_powers_of_ten(part: float, expected: str) -> None:
    assert words.share(part) == expected.replace(" %", "\u00a0%")
