"""Where the gate finds nothing there is nothing: the slow searches, asked of the same text without it, change nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diagnose import cache
from diagnose.redaction.gate import Gate, Hit, gate
from diagnose.redaction.known import KNOWN
from diagnose.redaction.text import Redactor, suspects
from tests.diagnose.redaction.test_text import _texts, secrets

_WORDS = (
    "pass password passwd passphrase pwd secret apikey secretkey accesskey authtoken accesstoken authorization sshpass key"
    " token tokens jwt webhook auth credential credentials cookie sas sig signature pat dsn session id base access"
    " hf api my count secret_key_base access_key_id"
).split()
_NAMES = st.lists(
    st.sampled_from(_WORDS).flatmap(lambda word: st.sampled_from([word, word.upper(), word.title(), word + "2"])),
    min_size=1,
    max_size=3,
).flatmap(lambda words: st.sampled_from(["", "_", "-", ".", "__", " "]).map(lambda between: between.join(words)))
_VALUES = st.from_regex(r"[A-Za-z0-9+/._~-]{1,44}", fullmatch=True) | st.sampled_from(
    [
        "abc",
        "hunter2",
        "a b c1",
        "Bearer abc12345",
        "digest 1a2b3c4d5e6f7",
        "None",
        "'",
        '"',
        "${X}",
        "aB3dE5gH7jK9mN1p",
        "é1\u00a0x",
    ]
)
_ASSIGNED = st.builds(
    lambda before, name, between, quote, value, after: f"{before}{name}{between}{quote}{value}{quote}{after}",
    st.sampled_from(["", "x ", "--", "-", "?", "&", "\\n", "é", "1", "_", "'", "{'"]),
    _NAMES,
    st.sampled_from(["=", ": ", ":", " = ", " ", "  ", "=>", ":=", "==", "' : '", '\\": \\"', ", '", "=\t"]),
    st.sampled_from(["", "'", '"', '\\"', "b'"]),
    _VALUES,
    st.sampled_from(["", ",", ")", " done", ";x=1"]),
)


def without_gate(text: str) -> str:
    return Redactor()._redact(text).text


@settings(max_examples=200)
@given(_ASSIGNED | _texts | st.text(alphabet="aB3+/_-=.", max_size=60))
def test_what_the_gate_lets_through_is_as_it_was(text: str) -> None:
    assert suspects(text.split("\n")) or without_gate(text) == text


def numbered(lines: list[str]) -> list[str]:
    """With placeholders numbered as they come: they were numbered as patterns found them, in what is read at once."""
    known: dict[str, str] = {}
    name = re.compile(r"<(user|host)\d+>")
    return [name.sub(lambda one: known.setdefault(one[0], f"<{one[1]} {len(known)}>"), line) for line in lines]


@settings(max_examples=100)
@given(st.lists(_ASSIGNED | _texts.filter(lambda text: "\n" not in text and "\r" not in text), max_size=6))
@example(["pass=abc", "USER=A", "/HOME/@"])
def test_lines_come_out_as_without_it(lines: list[str]) -> None:
    assert numbered(Redactor().lines(lines)) == numbered(Redactor()._together(lines))


@pytest.mark.parametrize(("issuer", "pattern"), KNOWN, ids=[issuer for issuer, _ in KNOWN])
def test_hyperscan_reads_what_is_known_by_its_looks_as_re_does(issuer: str, pattern: str) -> None:
    @settings(max_examples=12)
    @given(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    def check(secret: str) -> None:
        assert gate().hits([f"use {secret} now".encode()])
        assert secret not in without_gate(f"use {secret} now")

    check()


def test_it_is_the_same_whether_it_was_compiled_or_kept_and_a_spoilt_copy_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGNOSE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "READY", tmp_path / "nothing came with the package")
    lines = [b"step 1 loss 2.0", b"password: hunter2", b"/opt/train/" + b"a" * 40, b"token=" + b"Ab1" * 20, b"Cookie: a=b"]
    expected = [Hit(1, False), Hit(2, True), Hit(3, False), Hit(4, False)]
    assert Gate().hits(lines) == expected, "compiled"
    (kept,) = tmp_path.glob("gate-*")
    whole = kept.read_bytes()
    assert Gate().hits(lines) == expected, "read back"
    assert kept.read_bytes() == whole
    cache.store("gate", kept.name.removeprefix("gate-"), b"of another processor")
    assert Gate().hits(lines) == expected, "compiled anew"
    assert kept.read_bytes() == whole


def test_every_secret_of_the_suite_stops_it() -> None:
    for text, _, _ in secrets():
        assert suspects(text.split("\n")), text


def test_sample_logs_pass_as_they_would_without() -> None:
    for path in sorted((Path(__file__).parents[3] / "fixtures" / "logs").rglob("*.log")):
        lines = path.read_text("utf-8", "replace").split("\n")[:400]
        for line in lines:
            assert suspects([line]) or without_gate(line) == line
