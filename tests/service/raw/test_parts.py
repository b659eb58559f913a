"""Raw logs on disk: what was put in comes out, by line and by byte, whatever was cut, torn or deleted."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.redaction.stream import Concealer, conceal
from service.api import raw as api
from service.raw import parts
from service.raw.parts import Gap, Line, RawLog
from tests.support.strategies import cuts, logs


def put(log: RawLog, *pieces: bytes) -> None:
    for piece in pieces:
        if piece:
            log.commit(log.append(piece))


def lines(folder: Path, **place: int) -> list[Line]:
    return [one for one in parts.read(folder, **place) if isinstance(one, Line)]


def whole(folder: Path) -> bytes:
    return b"".join(b"<gap>" if isinstance(one, Gap) else one[1] for one in parts.raw(folder))


def test_what_should_come_at_the_end_and_does_not_is_a_gap(tmp_path: Path) -> None:
    put(RawLog(tmp_path), b"one\n")
    assert [one for one in parts.raw(tmp_path, until=10) if isinstance(one, Gap)] == [Gap(4, 10)]
    assert not any(isinstance(one, Gap) for one in parts.raw(tmp_path, until=4))
    told = b"".join(api._bytes(tmp_path, 0, redact=False, received=10))
    assert told == b"one\n\n--- diagnose: bytes 4 to 10 of this source are not kept so far ---\n"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FRAME", 100)
    monkeypatch.setattr(parts, "LONGEST", 250)


@given(st.data())
def test_it_reads_as_the_plain_text_does(data: st.DataObject) -> None:
    text = data.draw(logs)
    pieces = data.draw(cuts(text))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "source"
        log = RawLog(folder, part=data.draw(st.sampled_from([1, 300, 1 << 20])))
        for piece in pieces:
            if data.draw(st.booleans()):
                log = RawLog(folder, part=200)
            put(log, piece)
        assert whole(folder) == text
        expected = text.split(b"\n")
        if not expected[-1]:
            expected.pop()
        if text:
            first = data.draw(st.integers(1, len(expected) + 2))
            assert [one.text for one in lines(folder, line=first)] == expected[first - 1 :]
            assert [one.line for one in lines(folder, line=first)] == list(range(first, len(expected) + 1))
            assert not any(one.torn or one.cut for one in lines(folder, line=first))
            at = data.draw(st.integers(0, len(text) - 1))
            assert parts.place(folder, at)[1] == text.count(b"\n", 0, at) + 1
            for one in lines(folder, line=1):
                assert one.offset is not None
                assert text.startswith(one.text, one.offset)


def test_a_torn_tail_is_cut_at_every_length(tmp_path: Path) -> None:
    put(RawLog(tmp_path / "a"), b"one\n", b"two\n")
    (part,) = (tmp_path / "a").iterdir()
    good = part.stat().st_size
    put(RawLog(tmp_path / "a"), b"three\nfour\n")
    size = part.stat().st_size
    for length in range(good, size):
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        os.truncate(tmp_path / "b" / part.name, length)
        log = RawLog(tmp_path / "b")
        assert (log.end, log.lines) == (8, 2)
        put(log, b"again\n")
        assert [one.text for one in lines(tmp_path / "b", line=1)] == [b"one", b"two", b"again"]
        shutil.rmtree(tmp_path / "b")


def test_a_tail_of_zeros_is_none(tmp_path: Path) -> None:
    """What some file systems leave behind when the power fails."""
    put(RawLog(tmp_path), b"one\n", b"two\n")
    (part,) = tmp_path.iterdir()
    size = part.stat().st_size
    with open(part, "r+b") as file:
        file.seek(size - 5)
        file.write(b"\0" * 5)
    log = RawLog(tmp_path)
    assert (log.end, log.lines) == (4, 1)


def test_other_programs_read_it(tmp_path: Path) -> None:
    if shutil.which("zstdcat") is None:
        pytest.skip("zstd is not installed")
    text = bytes(random.Random(1).choices(b"abc \n", k=3 << 20))
    put(RawLog(tmp_path), text[:1000], text[1000:])
    (part,) = tmp_path.iterdir()
    assert subprocess.run(["zstdcat", str(part)], capture_output=True, check=True).stdout == text


def test_a_line_without_end_costs_no_memory(tmp_path: Path, small: None) -> None:
    put(RawLog(tmp_path), b"begin\n" + b"x" * 5_000, b"y" * 500 + b"\nend\n")
    first, long, last = lines(tmp_path, line=1)
    assert (long.line, long.text, long.cut) == (2, b"x" * 250, 5_250)
    assert (first.text, last) == (b"begin", Line(3, 5507, b"end", 0, False))
    assert lines(tmp_path, line=3) == [last]


def test_missing_bytes_are_said_and_later_lines_keep_their_numbers(tmp_path: Path) -> None:
    log = RawLog(tmp_path)
    put(log, b"1\n2\n3")
    log.skip(9, 2)  # "\n4\n5" was given up
    put(log, b"\n6\n")
    assert list(parts.read(tmp_path, line=2)) == [
        Line(2, 2, b"2", 0, False),
        Line(3, 4, b"3", 0, True),
        Gap(5, 9),
        Line(5, 9, b"", 0, True),
        Line(6, 10, b"6", 0, False),
    ]
    assert lines(tmp_path, line=6)[0].text == b"6"
    assert whole(tmp_path) == b"1\n2\n3<gap>\n6\n"


def test_a_part_that_was_deleted_is_a_gap(tmp_path: Path) -> None:
    log = RawLog(tmp_path, part=1)
    put(log, b"1\n2\n", b"3\n4\n", b"5\n6\n")
    parts.parts(tmp_path)[1].path.unlink()
    told = [one.text if isinstance(one, Line) else one for one in parts.read(tmp_path, line=1)]
    assert told == [b"1", b"2", Gap(4, 8), b"5", b"6"]
    assert next(parts.read(tmp_path, line=4)) == Gap(None, 8)


def test_lines_that_cannot_be_counted_are_not_numbered(tmp_path: Path) -> None:
    log = RawLog(tmp_path)
    log.skip(100, None)  # raw logs were switched on later
    put(log, b"half\nwhole\n")
    assert lines(tmp_path, line=1) == []
    assert [(one.line, one.text) for one in lines(tmp_path, offset=0)] == [(None, b"half"), (None, b"whole")]
    assert not RawLog(tmp_path).counted


KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEAx7\n" * 5 + "-----END RSA PRIVATE KEY-----"


def cuts_of(parts: list[bytes]) -> st.SearchStrategy[list[list[bytes]]]:
    """``parts`` in groups."""
    places = st.sets(st.integers(1, len(parts) - 1)).map(sorted)
    return places.map(lambda at: [parts[a:b] for a, b in itertools.pairwise([0, *at, len(parts)])])


PIECES = st.sampled_from(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----",
        "-----END CERTIFICATE----- -----BEGIN PRIVATE KEY-----",
        "short==",
        "",
        "step 1 loss 2.0",
        "HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789 was refused",
        "password=Tr0ub4dorAndThree",
        "\u00e9 " + "filler " * 1_000,
        "filler " * 3_000,
    ]
)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=12).map(lambda lines: "\n".join(lines).encode()), st.data())
def test_what_is_shown_of_a_log_is_what_the_whole_would_show(text: bytes, data: st.DataObject) -> None:
    """Wherever it was cut when it was written, and from whatever line or byte on it is read."""
    expected = conceal(text)
    pieces = data.draw(cuts(text))
    concealer = Concealer()
    assert b"".join([*map(concealer.feed, pieces), concealer.rest()]) == expected
    with tempfile.TemporaryDirectory() as name:
        log = RawLog(Path(name))
        put(log, *pieces)
        assert b"".join(api._bytes(Path(name), 0, True)) == expected
        known = [line.decode() for line in expected.split(b"\n")]
        first = data.draw(st.integers(1, len(known)))
        shown = api.page(Path(name), first, None, None, 1000, True)["lines"]
        assert [line["text"] for line in shown] == known[first - 1 : None if known[-1] else -1]
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        shown = api.page(Path(name), None, None, at, 1000, True)["lines"]
        assert [line["text"] for line in shown] == known[text.count(b"\n", 0, at) : None if known[-1] else -1]


def test_a_key_is_hidden_also_where_lines_cannot_be_counted(tmp_path: Path) -> None:
    log = RawLog(tmp_path)
    log.skip(100, None)
    put(log, b"half\npassword=", b"Tr0ub4dorAndThree\n", f"{KEY}\nafter\n".encode())
    told = [line["text"] for line in api.page(tmp_path, None, None, 0, 1000, True)["lines"]]
    assert told == ["half", "password=<token>", *["<private_key>"] * 7, "after"]
    for at in range(100, log.end):
        shown = api.page(tmp_path, None, None, at, 1000, True)["lines"]
        assert [line["text"] for line in shown] == told[-len(shown) :]
        assert shown[0]["offset"] <= at


@given(st.data())
def test_no_line_of_a_key_is_on_disk_however_it_came(data: st.DataObject) -> None:
    text = f"one\n{KEY}\nbetween\n{KEY}\nafter password=Tr0ub4dorAndThree\n".encode()
    pieces = [b"".join(some) for some in data.draw(cuts_of(text.splitlines(keepends=True)))]
    with tempfile.TemporaryDirectory() as name:
        log = RawLog(Path(name))
        for piece in pieces:
            log.rollback(log.append(piece, conceal))  # the disk was full
            log.commit(log.append(piece, conceal))
        expected = ["one", *["<private_key>"] * 7, "between", *["<private_key>"] * 7, "after password=<token>"]
        assert [one.text.decode() for one in lines(Path(name), line=1)] == expected


def test_a_redacted_log_is_read_by_line(tmp_path: Path) -> None:
    log = RawLog(tmp_path)
    text = b"one\npassword=hunter2hunter2\nthree\n"
    log.commit(log.append(text, conceal))
    assert [(one.line, one.offset) for one in lines(tmp_path, line=2)] == [(2, None), (3, None)]
    assert b"hunter2" not in b"".join(one.text for one in lines(tmp_path, line=1))
    assert log.end == len(text)


def damage(folder: Path, frame: int, *, head: bool) -> parts.Frame:
    """Flip a bit of one frame, or of the head before it."""
    found = list(parts.frames(folder))[frame]
    data = bytearray(found.path.read_bytes())
    data[found.at - 3 if head else found.at + found.packed // 2] ^= 4
    found.path.write_bytes(data)
    return found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("head", [False, True], ids=["frame", "head"])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_damage_costs_one_frame_and_is_a_gap(tmp_path: Path, which: int, head: bool) -> None:
    text = b"".join(b"line %d of this log\n" % number for number in range(60))
    put(RawLog(tmp_path), text)
    hit = damage(tmp_path, which, head=head)
    until = len(text)
    got = list(parts.raw(tmp_path, until=until))
    assert [one for one in got if isinstance(one, Gap)] == [Gap(hit.offset, hit.end)]
    assert b"".join(one[1] for one in got if not isinstance(one, Gap)) == text[: hit.offset] + text[hit.end :]
    for place in ({"line": 1}, {"offset": 0}):
        told = list(parts.read(tmp_path, **place))
        seen = [(one.line, one.text) for one in told if isinstance(one, Line)]
        wanted = [row for row in enumerate(text.splitlines(), 1) if row[1] in text[: hit.offset] + text[hit.end :]]
        assert seen == wanted
        if which != -1 or not head:  # nothing in the file says that a last frame without a head was there
            assert [(one.offset or 0, one.end) for one in told if isinstance(one, Gap)] == [(hit.offset, hit.end)]
    if not head:
        assert parts.place(tmp_path, hit.offset) == (hit, None)


@pytest.mark.usefixtures("small")
def test_a_log_with_a_damaged_head_is_not_cut_there_when_it_is_opened_again(tmp_path: Path) -> None:
    text = b"".join(b"line %d of this log\n" % number for number in range(60))
    put(RawLog(tmp_path), text)
    hit = damage(tmp_path, 1, head=True)
    again = RawLog(tmp_path)
    assert (again.end, again.lines) == (len(text), 60)
    put(again, b"one more\n")
    assert whole(tmp_path) == text[: hit.offset] + b"<gap>" + text[hit.end :] + b"one more\n"


@pytest.mark.usefixtures("small")
def test_what_a_sender_writes_in_the_shape_of_a_head_takes_no_place(tmp_path: Path) -> None:
    """Random bytes are stored as they are, so a head may be among them: it must not stand for what came before."""
    other = tmp_path / "other"
    put(RawLog(other), b"forged\n")
    forged = next(other.glob("*.zst")).read_bytes()
    log = tmp_path / "log"
    put(RawLog(log), b"first\n" * 10, random.Random(1).randbytes(20) + forged + random.Random(2).randbytes(20) + b"\nlast\n")
    damage(log, 1, head=True)
    assert b"forged" not in whole(log)
