"""Blocks that processes judged ahead come to the same as blocks that were read one after the other."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.compression.ahead import feed_ahead
from diagnose.compression.folds import KEEP, Folding
from diagnose.compression.judges import Judges
from diagnose.compression.kept_log import Compression
from diagnose.compression.snapshot import snapshot
from diagnose.diagnosis.likeness import sounds
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.scan import Cursor
from diagnose.reading.lines import LONGEST
from diagnose.reading.sources import Source
from tests.conftest import ROOT

_LARGE = b"a line\n" * 20_000


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load(), reserved=EARLY)


def log() -> bytes:
    """Steps with a loss that leaps, bars that redraw themselves, odd lines, facts, a line without bound, and half a line."""
    dice = random.Random(5)
    lines = []
    for step in range(1, 1500):
        loss = 900.0 if step % 500 == 0 else 2.0 + dice.random()
        lines.append(f"[rank{step % 4}]: iteration {step}/ 9000 | lm loss: {loss:.6E} | grad norm: {dice.random():.3f} |\n")
        if step % 7 == 0:
            lines.append("".join(f"Loading: {at % 100:3d}%|###   | {at}/1500\r" for at in (step, step + 1)))
        if step % 11 == 0:
            lines.append(f"shard {step} of the daemon is parked, quota {step * 2}.5\n")
        if step % 400 == 0:
            lines.append("x" * (LONGEST + step) + "\n\n")
    lines += ["Traceback (most recent call last):\n", "KeyError: 'shard'\n", "\0\0\0half a line"]
    return b"".join(line.encode() for line in lines) + (ROOT / "fixtures" / "logs" / "store.log").read_bytes()


def cut(data: bytes, size: int) -> Iterator[bytes]:
    """Pieces of about this size."""
    dice, at = random.Random(size), 0
    while at < len(data):
        end = at + dice.randrange(1, 2 * size)
        yield data[at:end]
        at = end


@pytest.mark.slow
@pytest.mark.parametrize("folding", [None, Folding(sounds, KEEP)], ids=["no folds", "folds"])
@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("processes", [1, 3])
def test_the_same_comes_out(
    matcher: Matcher, folding: Folding | None, size: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.compression.ahead._SMALL", size)  # else such blocks would be judged here
    one, many = Compression(matcher, folding), Compression(matcher, folding)
    texts = [scan.text for chunk in cut(log(), size) for scan in one.feed(0, chunk)]
    assert [scan.text for found in feed_ahead(many, 0, cut(log(), size), processes) for scan in found] == texts
    one.close(0)
    many.close(0)
    assert list(many.kept.rows()) == list(one.kept.rows())
    assert (many.counts, many.facts) == (one.counts, one.facts)
    assert any(line.rule == -2 for line in one.kept), "a loss that leaps is kept, which depends on the ones before"
    assert [fold[1:] for fold in many.folds()] == [fold[1:] for fold in one.folds()]
    assert many.series_names == one.series_names
    if folding is None:  # tables of folds begin with a number by chance
        assert snapshot(many) == snapshot(one)


def test_what_was_found_in_a_block_may_have_no_room(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    room = 65_536
    monkeypatch.setattr("diagnose.compression.ahead._SMALL", 1)
    monkeypatch.setattr("diagnose.compression.judges._FOUND", room)
    one, many = Compression(matcher), Compression(matcher)
    sizes = [len(scan.kept) + len(scan.text) for chunk in cut(log(), 30_000) for scan in one.feed(0, chunk)]
    assert min(sizes) < room < max(sizes)
    for _ in feed_ahead(many, 0, cut(log(), 30_000), 2):
        pass
    assert snapshot(many) == snapshot(one)
    assert list(many.kept.rows()) == list(one.kept.rows())


def test_what_a_process_raises_arrives(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Matcher, "scan", broken)
    with pytest.raises(MemoryError, match="no room"):
        list(feed_ahead(Compression(matcher), 0, [_LARGE] * 20, 2))


def test_a_process_that_is_ended_from_outside_ends_the_reading(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "scan", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(DiagnoseError, match="ended from outside"):
        list(feed_ahead(Compression(matcher), 0, [_LARGE] * 20, 2))


def test_all_processes_may_be_gone_before_they_are_asked(matcher: Matcher) -> None:
    judges = Judges(matcher, 2)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    with pytest.raises(DiagnoseError, match="ended from outside"):
        judges.ask(0, 0, 0, Cursor(1, False, False, -1))
    judges.close()


def test_no_process_is_left_when_nobody_reads_on(matcher: Matcher) -> None:
    before = multiprocessing.active_children()
    reading = feed_ahead(Compression(matcher), 0, [_LARGE] * 20, 2)
    next(reading)
    assert len(multiprocessing.active_children()) == len(before) + 2
    reading.close()
    assert multiprocessing.active_children() == before


@pytest.mark.parametrize("line_ends", ["LF", "CRLF"])
def test_a_file_that_is_read_to_where_it_is_judged(
    matcher: Matcher, tmp_path: Path, line_ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.reading.sources.PIECE", 90_000)  # so that all of the shared memory is used many times
    data = log() * 3
    path = tmp_path / "one.log"
    path.write_bytes(data.replace(b"\n", b"\r\n") if line_ends == "CRLF" else data)
    source = Source(str(path), path)
    one, many = Compression(matcher), Compression(matcher)
    for chunk in source.chunks():
        one.feed(0, chunk)
    again = Source(str(path), path)
    in_place: set[type] = set()
    pieces = again.pieces()
    many.feed(0, bytes(next(pieces)))

    def seen() -> Iterator[bytes | memoryview]:
        for piece in pieces:
            in_place.add(type(piece))
            yield piece

    for _ in feed_ahead(many, 0, seen(), 2, again):
        pass
    one.close(0)
    many.close(0)
    assert in_place == {memoryview}
    assert again.bytes_read == source.bytes_read == path.stat().st_size
    assert again.room is None
    assert snapshot(many) == snapshot(one)
    assert list(many.kept.rows()) == list(one.kept.rows())
    assert (many.counts, many.facts) == (one.counts, one.facts)
