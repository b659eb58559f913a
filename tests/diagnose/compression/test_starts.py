"""Where a source begins anew, whatever filters made of its first lines, and where the beginning of its file is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compression.folds import Folding
from diagnose.compression.kept_log import Compression
from diagnose.compression.starts import SOURCES
from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher, best_engine
from tests.conftest import examples
from tests.support.strategies import cuts

RULES = [
    Rule("modules", "filters", "^Loaded module", kind="init"),
    Rule("settings", "filters", "^ *setting ", kind="init"),
    Rule("step", "filters", r"^step \d+", kind="progress"),
    Rule("died", "failures", r"\wError: ", reason="runtime_error", layer="user"),
    Rule("odd", "failures", "^odd: ", reason="runtime_error", layer="user", severity="warning"),
]
MATCHERS: dict[str, Matcher] = {engine: Matcher(RuleSet.of(RULES), engine) for engine in ("plain", best_engine())}
PROLOG = "Loaded module compilers/gcc-{n}\nLoaded module toolkit/cuda-12\nsetting width of {n}12 units\nreading the words\n"
STEPS = "".join(f"step {n} of 900\n" for n in range(40))
DIED = 'Traceback (most recent call last):\n  File "/work/garden.py", line 9, in <module>\n    dig()\nValueError: bed {n}\n'
RUN = PROLOG + STEPS + DIED
LINES = RUN.count("\n")


def begins(text: str, engine: str = best_engine(), folding: Folding | None = None) -> list[tuple[int, int]]:
    compression = Compression(MATCHERS[engine], folding)
    compression.feed(0, text.encode())
    compression.close(0)
    count, found = compression.begins(0)
    compression.kept.close()
    assert count >= len(found)
    return [(begin.line, begin.failure) for begin in found]


def runs(*numbers: int) -> str:
    return "".join(RUN.format(n=n) for n in numbers)


@pytest.mark.parametrize("engine", MATCHERS)
def test_first_lines_that_filters_drop_tell_of_a_new_start(engine: str) -> None:
    assert begins(runs(1, 2, 3), engine) == [(LINES + 1, LINES), (2 * LINES + 1, 2 * LINES)]
    assert begins(runs(1), engine) == begins(runs(1) + STEPS, engine) == []
    assert begins(runs(1, 2).replace("\n", "\r\n"), engine) == [(LINES + 1, LINES)]


@pytest.mark.parametrize("engine", MATCHERS)
def test_in_a_file_that_begins_amid_a_run_the_later_starts_tell(engine: str) -> None:
    calm = "".join(f"step {n} of 900\n" for n in range(130))
    whole = [PROLOG.format(n=n) + calm + DIED.format(n=n) for n in range(3)]
    tail = "".join(whole[0].splitlines(keepends=True)[60:])
    over = (tail + whole[1]).count("\n")
    assert begins(tail + whole[1], engine) == []  # nothing says that it is no other rank's
    assert begins(tail + whole[1] + whole[2], engine) == [(over + 1, over)]


def test_what_a_dying_program_says_each_time_is_no_start() -> None:
    last_words = "the gardener waits for the upload\nyou can see the garden at its place\nthe notes lie in the shed\n"
    launcher = "LauncherError: garden.py failed\n"
    died = DIED.format(n=1) + last_words + launcher
    assert begins(STEPS + died + STEPS + died + STEPS + died) == []
    assert begins("one line\n" + died * 4) == []


def test_work_that_comes_again_is_no_start() -> None:
    epoch = "sowing the {n} beds\nwatering all of them\ncounting what grows\n" + STEPS[:100]
    worked = "".join(epoch.format(n=n) for n in range(9))
    assert begins(worked + DIED.format(n=1) + worked) == []


def test_ranks_that_say_the_same_are_no_starts() -> None:
    ranks = "".join(f"[rank{rank}]: Loaded module a/{line}\n" for line in "xyz" for rank in range(8))
    assert begins(ranks + STEPS + DIED.format(n=1) + ranks) == []


def test_frames_of_native_stacks_and_chained_tracebacks_are_no_beginning() -> None:
    frames = "".join(f"frame #{n}: tool::dig(bed const&) + 0x{n}7 (0x7fb386b8e457 in /opt/tool.so)\n" for n in range(9))
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n" + DIED.format(n=2)
    assert begins((frames + DIED.format(n=1) + frames + chained) * 3) == []


def test_a_warning_amid_the_first_lines_does_not_part_them() -> None:
    first, rest = PROLOG.split("\n", 1)
    run = (first + "\nodd: no such bed\n" + rest + STEPS + DIED).format(n=1)
    assert len(begins(run * 3)) == 2


def test_a_short_run_may_follow_another_without_a_failure_between() -> None:
    assert begins(PROLOG.format(n=1) + runs(2, 3)) == [(4 + LINES + 1, 4 + LINES)]


def test_of_very_many_sources_the_first_are_looked_at() -> None:
    compression = Compression(MATCHERS[best_engine()])
    for source in (0, SOURCES):
        compression.feed(source, runs(1, 2).encode())
    assert [compression.begins(source)[0] for source in (0, SOURCES)] == [1, 0]
    compression.kept.close()


def test_all_are_counted_and_the_latest_remembered() -> None:
    compression = Compression(MATCHERS[best_engine()])
    compression.feed(0, runs(*range(90)).encode())
    count, found = compression.begins(0)
    assert (count, len(found), found[-1].line) == (89, 64, 89 * LINES + 1)
    compression.kept.close()


_PARTS = [
    *PROLOG.format(n=4).splitlines(keepends=True), *DIED.format(n=4).splitlines(keepends=True), STEPS, "odd: no such bed\n",
    "sowing the beds\n", "\r", "a bar\r", "\rsowing the beds", "\n", "half a line", "ValueError: half a line", "\0\0",
    "\x1b[31mLoaded module compilers/gcc-1\x1b[0m\n", "[rank3]: Loaded module compilers/gcc-1\n", RUN.format(n=5),
]  # fmt: skip


@pytest.mark.parametrize("engine", MATCHERS)
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), parts=st.lists(st.sampled_from(_PARTS), max_size=40))
def test_nothing_depends_on_how_the_bytes_were_cut(engine: str, data: st.DataObject, parts: list[str]) -> None:
    text = "".join(parts).encode()

    def outcome(chunks: list[bytes]) -> Any:
        compression = Compression(MATCHERS[engine], Folding(sounds))
        for chunk in chunks:
            compression.feed(0, chunk)
        compression.close(0)
        kept = [(line.line, line.text) for line in compression.kept]
        starts = compression.stream(0).starts
        assert starts is not None
        compression.kept.close()
        return kept, compression.begins(0), starts.state

    assert outcome([text]) == outcome(data.draw(cuts(text)))


@pytest.mark.skipif(core is None, reason="only folds leave copies out")
def test_what_failed_in_an_earlier_run_stays_in_a_later_one() -> None:
    strange = "garden failed: the well is dry\n"
    run, end = PROLOG + STEPS + strange * 9 + DIED, "sowing the last bed\n" + STEPS

    def kept(text: str) -> int:
        compression = Compression(MATCHERS[best_engine()], Folding(sounds))
        compression.feed(0, text.encode())
        compression.close(0)
        count = sum(line.text == strange.strip().encode() for line in compression.kept)
        compression.kept.close()
        return count

    assert kept((run + PROLOG + STEPS + strange * 3 + end).format(n=1)) > kept((run + STEPS + strange * 3 + end).format(n=1))


def test_a_source_that_tells_of_failures_all_the_time_is_looked_at_in_part() -> None:
    compression = Compression(MATCHERS[best_engine()])
    talk = "".join(f"sowing bed {n} of the {'abcdefgh'[n % 8] * 3} garden\n" * 3 + DIED.format(n=n) for n in range(4000))
    compression.feed(0, talk.encode())
    starts = compression.stream(0).starts
    assert starts is not None
    assert starts.looked <= 1500 + talk.count("\n") // 1000 + 120
    compression.kept.close()


FIRST = "reading the words of the garden\nbuilding the beds of it\nsowing what is there\nwatering the beds\n"


def by(who: str, text: str) -> str:
    return "".join(who + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("who", ["[rank{}]: ", "{}: ", "gpu-{}: ", "[{},{}]<stderr>: "])
def test_another_ranks_late_first_lines_are_no_start(who: str) -> None:
    first, second = (by(who.format(1, n), FIRST) if "," in who else by(who.format(n), FIRST) for n in (1, 2))
    assert begins(first + DIED.format(n=1) + second + STEPS) == []
    assert len(begins(first + DIED.format(n=1) + first + STEPS)) == 1


@pytest.mark.skipif(core is None, reason="only folds leave copies out")
def test_a_program_that_crashes_again_and_again_is_looked_at_in_part() -> None:
    compression = Compression(MATCHERS[best_engine()], Folding(sounds))
    run = by("", FIRST) + "ValueError: the bed {n} is dry\n"
    compression.feed(0, "".join(run.format(n=n) for n in range(4000)).encode())
    compression.close(0)
    starts = compression.stream(0).starts
    assert starts is not None
    assert 256 <= compression.begins(0)[0] < 1000
    assert starts.looked <= 1500 + 20 + 120
    compression.kept.close()
