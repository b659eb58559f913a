"""Words that a pattern needs: to look for them first changes no answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnose.diagnosis import subjects
from diagnose.diagnosis.subjects import SUBJECTS, About, about
from diagnose.diagnosis.vocabulary import Sought, Vocabulary, Words, alternatives, needed, needs, small

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("disk full", {"disk full"}),
        (r"\bDisk\b.{0,20}\b(?:fail|error)s?\b", {"disk"}),
        ("(?:lost|gone)", {"lost", "gone"}),
        ("(?:lost|gone|[0-9]+)", set()),
        ("(?:lost)?", set()),
        ("(?:lost){2,}x", {"lost"}),
        ("(?i:FATAL)|panic", {"fatal", "panic"}),
        (r"re-?connected", {"connected"}),
        ("a(?!b)c", set()),
        (r"(?=.*\bpanic\b)\W+", {"panic"}),
        ("[a-z]+", set()),
        ("[A-Z](?:Error|Event|Err)", {"error", "event", "err"}),
        ("lost(?: disk|(?:node)+)", {"lost disk", "lostnode"}),
        (r"\ben[ops]\w*", {"eno", "enp", "ens"}),
        ("en[^ops]", {"en"}),
        ("en[a-z]", {"en"}),
        ("无法|超时", {"无法", "超时"}),
    ],
)
def test_the_words_that_a_pattern_needs(pattern: str, words: set[str]) -> None:
    assert needed(pattern) == words


def test_a_pattern_may_need_a_word_of_each_of_several_sets() -> None:
    told = needs(r"(?i)\b(?:NFS|lustre)\b.{0,9}\b(?:failed|lost)\b[a-z]")
    assert told == [frozenset({"nfs", "lustre"}), frozenset({"failed", "lost"})]


def test_words_are_needed_as_they_are_spelled_if_the_pattern_does_not_ignore_case() -> None:
    assert needed("[A-Z](?:Error|Fault)", exact=True) == {"Error", "Fault"}
    assert needed("(?i:Error)", exact=True) == frozenset()
    assert Sought("[A-Z](?:Error|Fault)").search("an OSError, no error") is not None
    assert Sought("[A-Z](?:Error|Fault)").search("an OSERROR") is None


@pytest.mark.parametrize(
    ("pattern", "cut"),
    [
        ("a|b", ["a", "b"]),
        ("a(?:b|c)|d", ["a(?:b|c)", "d"]),
        (r"a\|b|[|]|[]|]|[^]|]|[\[|]|\(|e", [r"a\|b", "[|]", "[]|]", "[^]|]", r"[\[|]", r"\(", "e"]),
        ("", [""]),
    ],
)
def test_a_pattern_is_cut_at_its_outermost_or(pattern: str, cut: list[str]) -> None:
    assert alternatives(pattern) == cut


@given(
    st.lists(st.text("abAB \u017f无", min_size=2, max_size=4), unique=True, max_size=20), st.text("abAB \u017f无", max_size=40)
)
def test_words_are_found_as_a_search_for_each_finds_them(words: list[str], text: str) -> None:
    assert sorted(Words(words).among(text)) == [number for number, word in enumerate(words) if word in text]


EVERY = [word for one in SUBJECTS for word in (*one.plain, *one.vague)]
WHOLE = [subjects.whole(word) for word in EVERY]


@pytest.mark.parametrize("pattern", WHOLE, ids=range(len(WHOLE)))
def test_each_subject_needs_a_word(pattern: str) -> None:
    """One without words would be tried at every line."""
    assert needed(pattern)


@given(data=st.data())
def test_whatever_a_subject_matches_has_one_of_its_words(data: st.DataObject) -> None:
    pattern = re.compile(data.draw(st.sampled_from(WHOLE)), re.IGNORECASE)
    text = data.draw(st.from_regex(pattern))
    assume(pattern.search(text) is not None)
    assert any(word in small(text) for word in needed(pattern.pattern))


def by_trying(body: str) -> About | None:
    """What ``about`` says, found by trying all words."""
    for plain in (True, False):
        for one in SUBJECTS:
            for word in one.plain if plain else one.vague:
                if re.search(subjects.whole(word), body[: subjects.MOST], re.IGNORECASE):
                    return About(one.reason, plain)
    return None


@pytest.mark.slow
def test_a_line_is_about_what_the_first_words_say_that_match_it() -> None:
    lines = {
        line
        for path in sorted(LOGS.rglob("*.log"))[:60]
        for line in path.read_text("utf-8", "replace").splitlines()
        if 8 < len(line) < 400
    }
    some = sorted(lines)[:: max(1, len(lines) // 250)]
    told = [about(line) for line in some]
    assert told == [by_trying(line) for line in some]
    assert sum(one is not None for one in told) > 20


@pytest.mark.parametrize("text", ["DIS\u212a FULL", "di\u017fk full", "D\u0131sk full", "disk FULL"])
def test_a_letter_that_is_taken_for_another_hides_no_word(text: str) -> None:
    assert re.search("disk full", text, re.IGNORECASE) is not None
    assert list(Vocabulary(["nothing", "disk full"]).found(text)) == [1]
    assert Sought("(?i)disk full").search(text) is not None


def test_a_pattern_is_found_only_where_all_its_sets_have_a_word() -> None:
    words = Vocabulary([r"(?:disk|drive) (?:full|lost)", r"disk\d"])
    assert list(words.found("drive lost, disk0")) == [0, 1]
    assert list(words.found("disk drive")) == []
    assert words.any("the disk full")
    assert not words.any("full disk")


def test_patterns_are_found_in_their_order() -> None:
    words = Vocabulary(["zeta", "eta", r"\d+", "theta"])
    assert list(words.found("beta eta 7 zeta")) == [0, 1, 2]
    assert list(words.found("nothing")) == []


def test_a_pattern_finds_what_it_finds_without_a_look_for_words() -> None:
    sought = Sought(r"(?i)\bexit code (?P<code>\d+)")
    found = sought.search("it ended with Exit Code 17")
    assert found is not None
    assert found["code"] == "17"
    assert sought.search("it ended well") is None
    assert sought.match("exit code 3, and then") is not None
    assert sought.match("it ended with exit code 3") is None
