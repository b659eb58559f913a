"""Kept or dropped, counted; whatever the chunks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compression.kept_log import NOTABLE, Compression, points
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.matcher import Matcher, best_engine
from tests.conftest import examples
from tests.support.logs import shipped_matcher
from tests.support.strategies import cuts

RULES = RuleSet.of(
    [
        Rule("step", "filters", r"^step \d+ loss", kind="metric", metrics=(("step", r"step (\d+)"), ("loss", r"loss (\S+)"))),
        Rule("bar", "filters", r"^\d+%", kind="progress", metrics=(("loss", r"loss=([\d.]+|nan)"),)),
        Rule("oops", "failures", "oops", reason="runtime_error", layer="user"),
    ]
)
MATCHERS = {engine: Matcher(RULES, engine) for engine in ("plain", best_engine())}


def compress(chunks: list[bytes], engine: str = "plain") -> tuple[object, ...]:
    compression = Compression(MATCHERS[engine])
    for chunk in chunks:
        compression.feed(0, chunk)
    compression.close(0)
    counts = compression.counts
    kept = [(line.line, line.text, line.rule) for line in compression.kept]
    compression.kept.close()
    return (
        kept,
        (counts.lines_in, counts.bytes_in, counts.lines_kept, counts.bytes_kept, counts.blank),
        {rule: count for rule, count in counts.dropped.items() if count},
    )


def test_a_metric_line_that_leaps_is_kept_in_its_place() -> None:
    log = b"start\n" + b"".join(b"step %d loss 2.0\n" % n for n in range(20)) + b"step 20 loss 9.5\nstep 21 loss nan\nend\n"
    kept, counts, dropped = compress([log])
    assert kept == [
        (1, b"start", -1),
        (22, b"step 20 loss 9.5", NOTABLE),
        (23, b"step 21 loss nan", NOTABLE),
        (24, b"end", -1),
    ]
    assert counts == (24, len(log), 4, 44, 0)
    assert dropped == {1: 20}


def test_a_leap_inside_a_progress_bar_counts_its_line_once() -> None:
    log = b"".join(b"%d%% loss=2.0\r" % n for n in range(10)) + b"50% loss=99\r51% loss=2.0\n10% loss=2.0\n"
    kept, counts, dropped = compress([log])
    assert kept == [(1, b"50% loss=99", NOTABLE)]
    assert counts == (2, len(log), 1, 12, 0)
    assert dropped == {2: 1}


_lines = st.sampled_from(
    [b"step 1 loss 2.0\n", b"step 2 loss 9.0\n", b"step 3 loss nan\n", b"5% loss=2.0\r", b"6% loss=nan\r", b"7% loss=50\n",
     b"text\n", b"oops\n", b"\n", b"text\r", b"\0", b"8%\r\n"]
)  # fmt: skip


@settings(max_examples=examples(200))
@given(st.lists(_lines, max_size=60).map(b"".join).flatmap(lambda data: st.tuples(st.just(data), cuts(data))))
def test_counts_and_kept_lines_do_not_depend_on_the_chunks_or_the_engine(pair: tuple[bytes, list[bytes]]) -> None:
    data, chunks = pair
    expected = compress([data])
    assert compress(chunks) == expected
    assert compress(chunks, best_engine()) == expected
    lines_in, _, lines_kept, _, blank = expected[1]  # type: ignore[misc]
    assert lines_in == lines_kept + blank + sum(expected[2].values())  # type: ignore[attr-defined]


WHO = b"gpu014:3101:3360 [3] NCCL INFO comm 0x7f10e00090a0 rank %d nranks 16 cudaDev 3 busId 8a000 - Init COMPLETE"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\rmore\n", b"\r50%|##|\n", b""])
@pytest.mark.parametrize("before", [b"", b"some words\r", b"first line\n"])
def test_facts_do_not_depend_on_how_the_bytes_were_cut(end: bytes, before: bytes) -> None:
    log = before + WHO % 3 + end + WHO % 4 + b"\nKeyError: 'x'\n"

    def outcome(cuts: list[int]) -> tuple[object, ...]:
        job = Compression(shipped_matcher())
        for first, last in pairwise([0, *cuts, len(log)]):
            job.feed(0, log[first:last])
        job.close(0)
        counts = job.counts
        dropped = {number: count for number, count in counts.dropped.items() if count}
        return job.facts, list(job.kept), (counts.lines_in, counts.lines_kept, counts.bytes_kept), dropped

    whole = outcome([])
    assert (0, WHO % 4) in whole[0] or end == b""  # type: ignore[operator]
    for cut in range(1, len(log)):
        assert outcome([cut]) == whole, cut


def fed(*texts: bytes) -> Compression:
    compression = Compression(MATCHERS["plain"])
    for source, text in enumerate(texts):
        compression.feed(source, text)
    return compression


def losses(count: int, start: int = 0) -> bytes:
    return b"".join(b"step %d loss 2.0\n" % n for n in range(start, start + count))


def test_of_several_sources_the_fullest_series_is_the_jobs() -> None:
    compression = fed(losses(5), losses(9, start=100), losses(9, start=50), b"text\n")
    number, series = compression.series("loss") or (None, None)
    assert (number, series and series.count) == (1, 9), "of two that are as full, the first"
    assert compression.series("grad_norm") is None
    assert compression.series_names == ["loss"], "steps are told apart"
    assert compression.last_step == 108
    assert fed(b"text\n").last_step is None


def test_how_far_a_source_came_is_told_by_its_first_and_last_metric_line() -> None:
    compression = fed(b"begin\n" + losses(4) + b"end\n" + b"step 9 loss 2.0 " + b"x" * 500 + b"\nbye\n", b"text\n")
    progress = compression.progress(0)
    assert (progress.first, progress.last_line) == (b"step 0 loss 2.0", 7)
    assert progress.last == b"step 9 loss 2.0 " + b"x" * 144
    assert (compression.progress(1).first, compression.progress(1).last_line) == (b"", 0)


def test_a_source_that_begins_again_counts_its_lines_from_one() -> None:
    compression = fed(b"one\ntwo\nhal")
    assert compression.lines_of(0) == 2, "half a line is none yet"
    compression.restart(0)
    compression.feed(0, b"anew\n")
    assert [(line.line, line.text) for line in compression.kept] == [(1, b"one"), (2, b"two"), (3, b"hal"), (1, b"anew")]
    assert compression.lines_of(0) == 1
    assert compression.counts.lines_in == 4


def test_what_was_dropped_is_told_by_rule_and_by_kind_the_most_first() -> None:
    compression = fed(b"1%\n2%\n\n" + losses(3) + b"oops\n")
    assert list(compression.dropped_by_rule().items()) == [("step", 3), ("bar", 2)]
    assert list(compression.dropped_by_kind().items()) == [("metric", 3), ("progress", 2), ("blank", 1)]


def test_kept_lines_are_found_again_when_they_are_too_many_for_the_memory() -> None:
    text = b"".join(b"unknown %d %s\n" % (n, b"x" * 300) for n in range(9000)) + b"oops\n"
    compression = fed(text, b"oops\nother\n")
    rows = list(compression.kept)
    assert len(rows) == compression.kept.lines == 9003
    assert rows[8999].text == b"unknown 8999 " + b"x" * 300
    rule = next(row.rule for row in rows if row.text == b"oops")
    assert [(order, row.source) for order, row in compression.kept.chosen(lambda order, source, of: of == rule)] == [
        (9000, 0),
        (9001, 1),
    ]
    assert [row.text for _, row in compression.kept.chosen(lambda order, *_: order in (0, 9002))] == [rows[0].text, b"other"]
    compression.feed(1, b"behind\n")
    assert [row.text for row in compression.kept][-2:] == [b"other", b"behind"]


def test_the_points_of_a_curve_are_means_with_their_bounds_and_gaps() -> None:
    values = [b"2.0", b"nan", b"4.0", b"nan"]
    log = b"".join(b"step %d loss %s\n" % (n, value) for n, value in enumerate(values))
    _, series = fed(log).series("loss") or (0, None)
    assert series is not None
    assert points(series) == [[0, 2, 2, 2], [1, None, None, None], [2, 4, 4, 4], [3, None, None, None]]
    _, series = fed(losses(2)).series("loss") or (0, None)
    assert series is not None
    assert points(series) == [[0, 2, 2, 2], [1, 2, 2, 2]]


def test_the_more_sources_tell_a_number_the_less_room_have_the_next_ones() -> None:
    compression = Compression(MATCHERS["plain"])
    for source in range(200):
        compression.feed(source, b"step 1 loss 2.0\n")
    rooms = [compression.streams[source].series["loss"].room for source in range(200)]
    compression.kept.close()
    assert rooms == [512] * 8 + [64] * 56 + [8] * 136


def test_a_new_source_does_not_look_at_all_others_once_they_are_many() -> None:
    class Streams(dict):  # type: ignore[type-arg]
        looked = 0

        def values(self) -> Any:
            for stream in super().values():
                self.looked += 1
                yield stream

    compression = Compression(MATCHERS["plain"])
    compression.streams = Streams()
    for source in range(1000):
        compression.feed(source, b"step 1 loss 2.0\n")
    compression.kept.close()
    assert compression.streams.looked < 1000 * 2 * 70
