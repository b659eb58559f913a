"""A job that was restored goes on as if nothing had happened."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compression.kept_log import Compression
from diagnose.compression.snapshot import FORMAT, StoredLine, restored, snapshot, stored
from diagnose.errors import DiagnoseError
from diagnose.job import Job
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.matcher import Matcher, best_engine
from diagnose.reading.sources import find
from tests.conftest import ROOT, examples
from tests.support.logs import shipped_matcher
from tests.support.strategies import cuts, logs

RULES = [
    Rule("step", "filters", r"^step \d+ loss", kind="metric", metrics=(("step", r"step (\d+)"), ("loss", r"loss (\S+)"))),
    Rule("a", "filters", "^a", kind="debug"),
    Rule("oops", "failures", "error|79", reason="runtime_error", layer="user"),
]
MATCHERS = {engine: Matcher(RuleSet.of(RULES), engine) for engine in ("plain", best_engine())}
JOBS = ROOT / "fixtures" / "logs"


def reborn(compression: Compression, matcher: Matcher | None = None) -> Compression:
    lines = [stored(line, compression.matcher.rules) for line in compression.kept]
    data = snapshot(compression)
    compression.kept.close()
    return restored(data, matcher or compression.matcher, lines)


def outcome(compression: Compression) -> dict[str, Any]:
    rules = compression.matcher.rules
    counts = compression.counts
    return {
        "kept": [stored(line, rules) for line in compression.kept],
        "counts": (counts.lines_in, counts.bytes_in, counts.lines_kept, counts.bytes_kept, counts.blank),
        "dropped": compression.dropped_by_kind(),
        "facts": compression.facts,
        "begins": [compression.begins(source) for source in sorted(compression.streams)],
        "series": {name: repr(compression.series(name)) for name in compression.series_names},  # repr: nan is not nan
        "progress": [vars(compression.progress(source)) for source in sorted(compression.streams)],
    }


@pytest.mark.slow
@pytest.mark.parametrize("engine", MATCHERS)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), first=logs, second=logs)
def test_it_goes_on_wherever_it_was_cut(engine: str, data: st.DataObject, first: bytes, second: bytes) -> None:
    metrics = b"".join(b"step %d loss %d\n" % (n, 9000 if n % 11 == 10 else 2) for n in range(25))
    chunks = [(0, chunk) for chunk in data.draw(cuts(first + metrics))] + [(1, chunk) for chunk in data.draw(cuts(second))]
    chunks = data.draw(st.permutations(range(len(chunks))).map(lambda order: _in_order(chunks, order)))
    plain, broken = Compression(MATCHERS[engine]), Compression(MATCHERS[engine])
    for source, chunk in chunks:
        plain.feed(source, chunk)
        broken.feed(source, chunk)
        if data.draw(st.booleans()):
            broken = reborn(broken)
    for source in (0, 1):
        plain.close(source)
        broken.close(source)
    assert outcome(plain) == outcome(broken)


def tables(compression: Compression) -> dict[str, bytes]:
    """Bit by bit."""
    found = {name: compression.series(name) for name in compression.series_names}
    return {name: one[1].table.tobytes() for name, one in found.items() if one is not None}


@pytest.mark.parametrize("size", [0, 8, 16, 40, 48, 47])
def test_a_table_of_another_size_is_damaged(size: int) -> None:
    compression = Compression(MATCHERS["plain"])
    compression.feed(0, b"step 1 loss 2\nstep 2 loss 2\nstep 3 loss 2\n")
    whole = zstandard.ZstdDecompressor().decompress(snapshot(compression))
    (length,) = struct.unpack_from("<I", whole)
    state = json.loads(whole[4 : 4 + length])
    state["streams"][0]["series"]["loss"][-1][1] = size
    head = json.dumps(state).encode()
    spoilt = zstandard.ZstdCompressor(write_checksum=True).compress(struct.pack("<I", len(head)) + head + whole[4 + length :])
    with pytest.raises(DiagnoseError, match="is damaged"):
        restored(spoilt, compression.matcher, [])


@pytest.mark.parametrize("engine", MATCHERS)
@pytest.mark.parametrize(
    ("steps", "odd"), [(0, b""), (7, b"3.5"), (7, b"-0.0"), (7, b"nan"), (512, b"-2"), (513, b"3"), (1300, b"inf")]
)
def test_a_series_is_the_same_whether_its_buckets_are_one_number_or_many(engine: str, steps: int, odd: bytes) -> None:
    log = b"".join(b"step %d loss %s\n" % (step, odd if step == 5 else b"%d.25" % (step % 9)) for step in range(steps))
    compression = Compression(MATCHERS[engine])
    compression.feed(0, log)
    before = outcome(compression), tables(compression)
    again = reborn(compression)
    assert (outcome(again), tables(again)) == before
    again.feed(0, log)
    whole = Compression(MATCHERS[engine])
    whole.feed(0, log + log)
    assert outcome(again) == outcome(whole)


@pytest.mark.parametrize("engine", MATCHERS)
def test_a_line_that_was_begun_counts_as_it_would_have(engine: str) -> None:
    """Also where a part of it was kept, or dropped, before the cut."""
    log = b"error one\rmore of it\na bar\rof debug\nunknown\rthen a\nstep 1 loss 2\rhalf"
    whole = Compression(MATCHERS[engine])
    whole.feed(0, log)
    whole.close(0)
    for cut in range(len(log)):
        broken = Compression(MATCHERS[engine])
        broken.feed(0, log[:cut])
        broken = reborn(broken)
        broken.feed(0, log[cut:])
        broken.close(0)
        assert outcome(broken) == outcome(whole), cut


def test_many_kept_lines_of_several_sources_come_back_in_their_order() -> None:
    compression = Compression(MATCHERS["plain"])
    for source, lines in ((0, 2300), (1, 1000), (0, 1)):
        compression.feed(source, b"".join(b"unknown %d error\n" % n for n in range(lines)))
    expected = list(compression.kept)
    assert list(reborn(compression).kept) == expected


def _in_order(chunks: list[tuple[int, bytes]], order: Iterable[int]) -> list[tuple[int, bytes]]:
    """Sources interleaved by ``order``, each in its own order."""
    queues = {source: iter([chunk for chunk in chunks if chunk[0] == source]) for source in (0, 1)}
    return [next(queues[chunks[index][0]]) for index in order]


@pytest.mark.parametrize("name", sorted(path.name for path in JOBS.iterdir() if path.is_dir())[::6])
def test_a_sample_job_gives_the_same_report(name: str) -> None:
    sources = find([str(JOBS / name)]).sources
    plain, broken = Job(name, sources, shipped_matcher()), Job(name, sources, shipped_matcher())
    dice = random.Random(name)
    for number, source in enumerate(sources):
        for chunk in source.chunks():
            at = 0
            while at < len(chunk):
                piece = chunk[at : (at := at + dice.randrange(1, 20_000))]
                plain.feed(number, piece)
                broken.feed(number, piece)
                lines = [stored(line, broken.compression.matcher.rules) for line in broken.compression.kept]
                saved = broken.snapshot()
                broken = Job(name, sources, shipped_matcher())
                broken.restore(saved, lines)
        plain.close(number)
        broken.close(number)
    assert plain.report().as_dict() == broken.report().as_dict()


def test_of_very_many_sources_those_that_have_not_changed_are_as_they_were() -> None:
    """What a snapshot has of them is made once. Restored, the job is the same as if all of it had been made anew."""
    matcher = MATCHERS[best_engine()]
    compression, twin = (Compression(matcher) for _ in range(2))

    def feed(sources: Iterable[int], chunk: bytes) -> None:
        for source in sources:
            compression.feed(source, chunk)
            twin.feed(source, chunk)

    feed(range(300), b"step 1 loss 2\nerror 79\nhalf")
    assert compression.series("loss") == (0, twin.streams[0].series["loss"])
    snapshot(compression)
    feed((7,), b" a line\nstep 2 loss 3\n")
    feed((299,), b" and nothing more")
    snapshot(compression)
    compression.close(5)
    twin.close(5)
    assert compression.last_step == 2
    found = compression.series("step")
    assert found is not None
    assert (found[0], found[1].last) == (7, 2.0)
    assert outcome(reborn(compression)) == outcome(twin)


def test_a_snapshot_of_another_format_is_not_read() -> None:
    """What the core wrote then was laid out otherwise, though its length may be the same."""
    compression = Compression(MATCHERS["plain"])
    compression.feed(3, b"step 1 loss 2\na line\nhalf")
    length = struct.Struct("<I")
    whole = zstandard.ZstdDecompressor().decompress(snapshot(compression))
    (size,) = length.unpack_from(whole)
    head, rest = json.loads(whole[length.size : length.size + size]), whole[length.size + size :]
    lines = [stored(line, compression.matcher.rules) for line in compression.kept]
    for other in (FORMAT - 1, FORMAT + 1):
        text = json.dumps({**head, "format": other}).encode()
        saved = zstandard.ZstdCompressor(write_checksum=True).compress(length.pack(len(text)) + text + rest)
        with pytest.raises(DiagnoseError, match=f"has format {other}; this version reads {FORMAT}"):
            restored(saved, compression.matcher, lines)


def test_rules_that_are_gone_still_count() -> None:
    compression = Compression(MATCHERS["plain"])
    compression.feed(0, b"a1\na2\nan error\nstep 1 loss 2\na half")
    fewer = Matcher(RuleSet.of(rule for rule in RULES if rule.id != "a"), "plain")
    compression = reborn(compression, fewer)
    compression.feed(0, b" line\na3\n")
    assert compression.dropped_by_kind() == {"debug": 2, "metric": 1}
    assert [stored(line, fewer.rules) for line in compression.kept] == [
        StoredLine(0, 3, b"an error", "oops"),
        StoredLine(0, 5, b"a half line", None),
        StoredLine(0, 6, b"a3", None),
    ]


def test_lines_kept_after_the_snapshot_are_left_out() -> None:
    compression = Compression(MATCHERS["plain"])
    compression.feed(0, b"one\ntwo\n")
    saved = snapshot(compression)
    compression.feed(0, b"three\n")
    lines = [stored(line, compression.matcher.rules) for line in compression.kept]
    again = restored(saved, compression.matcher, lines)
    again.feed(0, b"three\n")
    assert [line.text for line in again.kept] == [b"one", b"two", b"three"]


def test_what_cannot_be_restored_is_said() -> None:
    compression = Compression(MATCHERS["plain"])
    compression.feed(0, b"one\ntwo\n")
    saved = snapshot(compression)
    with pytest.raises(DiagnoseError, match="0 kept lines were given back of 2"):
        restored(saved, compression.matcher, [])
    with pytest.raises(DiagnoseError, match="is damaged"):
        restored(saved[:-3], compression.matcher, [])


def test_any_bit_that_flips_in_a_snapshot_is_noticed() -> None:
    """SQLite has no checksums, so a snapshot has one of its own. A bit that means nothing may flip."""
    compression = Compression(MATCHERS["plain"])
    compression.feed(0, b"one\ntwo\nstep 1 loss 2\n")
    lines = [stored(line, compression.matcher.rules) for line in compression.kept]
    saved, noticed = snapshot(compression), 0
    for bit in range(8 * len(saved)):
        flipped = bytearray(saved)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            again = restored(bytes(flipped), compression.matcher, lines)
        except DiagnoseError:
            noticed += 1
        else:
            assert snapshot(again) == saved
    assert noticed > 0.99 * 8 * len(saved)
