"""Raw text without its secrets: as many lines as before, wherever it was cut when it came."""

from __future__ import annotations

import os
import time
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.redaction.stream import REACH, Concealer, LineConcealer, begun_key, conceal
from tests.support.strategies import cuts

BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
KEY = f"{BEGIN}\n" + "MIIEpAIBAAKCAQEAx7\n" * 5 + END
PIECES = st.sampled_from(
    [
        BEGIN,
        END,
        "-----END CERTIFICATE----- -----BEGIN PRIVATE KEY-----",
        "short==",
        "",
        "step 1 loss 2.0",
        "HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789 was refused",
        "password=Tr0ub4dorAndThree",
        "\u00e9 " + "filler " * 1_000,
    ]
)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=12).map(lambda lines: "\n".join(lines).encode()), st.data())
def test_it_does_not_matter_where_the_text_was_cut(text: bytes, data: st.DataObject) -> None:
    concealer = Concealer()
    pieces = data.draw(cuts(text))
    assert b"".join([*map(concealer.feed, pieces), concealer.rest()]) == conceal(text)


@pytest.mark.parametrize(
    "text",
    [
        "a\nHF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789\n\nb",
        f"{KEY}\nafter",
        KEY[:80],
        "-----BEGIN PRIVATE KEY-----",
        "\x0c\x1c\x85\u2028password=hunter2hunter2\x0b\n\r\n",
    ],
)
def test_what_is_concealed_keeps_its_lines(text: str) -> None:
    told = conceal(text.encode()).decode()
    assert told.count("\n") == text.count("\n")
    for secret in ("hf_Ab", "MIIE", "hunter2"):
        assert secret not in told


@pytest.mark.parametrize(
    "line",
    [b"step 1 loss 2.0", b"\xff\xfe no text at all", "\u00e9\x0b\u2028\x85 strange white space".encode(), b"", b"\r 50%\r 51%"],
)
def test_a_line_without_a_secret_keeps_its_bytes(line: bytes) -> None:
    assert conceal(line) == line


def test_a_line_with_a_secret_stays_one_line() -> None:
    assert conceal("\u2028password=hunter2hunter2\x0bok\n".encode()).count(b"\n") == 1


def test_each_line_of_a_key_becomes_a_placeholder_and_the_lines_around_it_stay() -> None:
    told = conceal(f"before\n{KEY}\nbetween\n{KEY}\nafter".encode()).decode().split("\n")
    assert told == ["before", *["<private_key>"] * 7, "between", *["<private_key>"] * 7, "after"]


@pytest.mark.parametrize(("size", "hidden"), [(REACH - 100, True), (REACH + 100, False)], ids=["in reach", "too far"])
def test_a_key_ends_within_reach_or_it_is_none(size: int, hidden: bool) -> None:
    """Else one line would hide the rest of a log."""
    body = b"a word\n" * (size // 7)
    told = conceal(BEGIN.encode() + b"\n" + body + END.encode() + b"\nafter\n")
    assert (b"a word" not in told) is hidden
    assert told.startswith(b"<private_key>\n")
    assert told.endswith(b"after\n")


def test_a_key_that_goes_on_is_held_back_and_nothing_else() -> None:
    begun = f"{BEGIN}\nMIIEpAIBAAKCAQEAx7\n".encode()
    assert begun_key(b"before\n" + begun) == begun
    assert begun_key(f"before\n{KEY}\nafter\n".encode()) == b""
    assert begun_key(b"before\nafter\n") == b""
    assert begun_key(begun + b"x" * REACH) == b""


def test_whole_lines_are_shown_as_soon_as_they_are_there() -> None:
    concealer = Concealer()
    assert concealer.feed(b"one\ntwo\nthr") == b"one\ntwo\n"
    assert concealer.feed(b"ee\npassword=hunter2") == b"three\n"
    assert concealer.feed(b"hunter2") == b""
    assert concealer.rest() == b"password=<token>"
    assert concealer.rest() == b""


def test_a_long_line_is_cut_where_no_secret_can_lie_across() -> None:
    concealer = Concealer()
    told = concealer.feed(b"word " * 15_000 + b"password=hunter2")
    assert told.endswith(b"word ")
    assert b"hunter2" not in told + concealer.feed(b"hunter2\n")


def test_a_line_that_never_ends_waits_in_bounds() -> None:
    concealer = Concealer()
    told = bytearray()
    for number in range(100):
        told += concealer.feed(b"%3d%% done, password=Tr0ub4dorAndThree \r" % number * 100)
        assert len(told) > number * 3_000 - 2 * 65_536
    told += concealer.rest()
    assert told.count(b"\r") == 10_000
    assert b"Tr0ub" not in told


@pytest.mark.slow
def test_many_beginnings_of_keys_are_looked_at_in_little_time() -> None:
    text = b"-----BEGIN PRIVATE KEY-----\n" * 40_000
    began = time.thread_time()
    assert conceal(text) == b"<private_key>\n" * 40_000
    assert time.thread_time() - began < 6


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2026-11-21T10:00:00Z gpu-13 "])
def test_a_key_whose_lines_are_kept_one_by_one_among_others(prefix: str) -> None:
    body = [b64encode(os.urandom(48)).decode() for _ in range(25)] + [b64encode(os.urandom(7)).decode()]
    others = ["Traceback (most recent call last):", "RuntimeError: CUDA error: out of memory", "step 12 loss 2.1"]
    concealer = LineConcealer()
    told = []
    for number, line in enumerate(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", *others]):
        told.append(concealer.line(prefix + line))
        if number % 5 == 3:
            assert concealer.line(others[number % 3]) == others[number % 3], "evidence between them stays"
    assert not [line for line in body for one in told if line in one and len(line) > 12]
    assert told[-3:] == [prefix + line for line in others]
    assert concealer.line(body[0][:20]) == body[0][:20], "behind the end it is not looked for"


def test_a_key_that_never_ends_hides_no_more_than_a_key_can_be_long() -> None:
    concealer = LineConcealer()
    concealer.line("-----BEGIN RSA PRIVATE KEY-----")
    told = [concealer.line(f"word{number}") for number in range(4000)]
    assert told[0] == "<private_key>"
    assert told[-1] == "word3999"


def test_a_key_on_one_line_hides_nothing_behind_it() -> None:
    concealer = LineConcealer()
    assert concealer.line(KEY.replace("\n", "\\n")) == "<private_key>"
    assert concealer.line("checkpointsavedatstep100") == "checkpointsavedatstep100"


def test_the_line_right_behind_a_key_stays() -> None:
    concealer = LineConcealer()
    told = [concealer.line(line) for line in [*KEY.split("\n"), "checkpointsavedatstep100"]]
    assert told[1:-2] == ["<private_key>"] * 5
    assert told[-1] == "checkpointsavedatstep100"


def test_nothing_is_taken_for_a_key_before_one_has_begun() -> None:
    assert LineConcealer().line("checkpointsavedatstep100") == "checkpointsavedatstep100"


def test_a_key_that_begins_far_into_a_piece_waits_for_its_end() -> None:
    concealer = Concealer()
    head, half = KEY[:60], KEY[60:]
    told = concealer.feed(b"step 1 loss 2.0\n" * 700 + head.encode())
    assert told == b"step 1 loss 2.0\n" * 700
    told = concealer.feed(half.encode() + b"\nafter\n") + concealer.rest()
    assert told == b"<private_key>\n" * 7 + b"after\n"
