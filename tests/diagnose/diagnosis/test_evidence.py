"""The kept log -> the lines that diagnosis reads: all of a short one, of a long one its ends and what rules know."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.diagnosis.evidence import MOST, Event, Evidence, gather, normal, normal_by_patterns
from diagnose.matching.databases import core
from diagnose.reading.prefixes import body_start
from tests.conftest import examples
from tests.support.logs import job_of, report_of, shipped_matcher, steps

WORDS = (
    "amber birch cedar dune ember fjord grove heath islet jetty knoll larch moor nook oasis pine quay reef shoal tarn".split()
)
BROKE = "RuntimeError: CUDA error: an illegal memory access was encountered"


def prose(lines: int) -> list[str]:
    """Lines of which no two are alike, and which no rule knows."""
    chance = random.Random(7)
    return [" ".join(chance.choice(WORDS) for _ in range(12)) for _ in range(lines)]


@pytest.mark.slow
def test_a_long_log_is_read_at_its_ends_and_around_what_rules_know() -> None:
    lines = prose(MOST + 2_000)
    lines[9_000] = BROKE
    job = job_of("\n".join(lines) + "\n")
    kept = job.compression.kept
    evidence = gather(kept, shipped_matcher().rules, job.sources)
    read = [event.line for event in evidence.events]
    assert read == sorted(set(read))
    assert evidence.skipped == kept.lines - len(read) > 0
    assert len(read) <= MOST
    for line in (1, 2, 1_000, 9_001, 9_002, len(lines) - 1_000, len(lines)):
        assert line in read, line
    assert 8_000 not in read
    report = job.report()
    assert (report.diagnosis.reason, report.diagnosis.root_cause.line) == ("cuda_error", 9_001)  # type: ignore[union-attr]
    assert report.diagnosis.lines_not_read == evidence.skipped


def test_of_the_middle_only_what_rules_know_and_what_follows_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOST": 20, "_HEAD": 3, "_TAIL": 2, "_FIRSTS": 2, "_FOLLOWING": 3}.items():
        monkeypatch.setattr(f"diagnose.diagnosis.evidence.{name}", value)
    lines = prose(60)
    for number in (10, 30, 40):  # the third of its rule is one too many
        lines[number - 1] = BROKE
    job = job_of("\n".join(lines) + "\n")
    evidence = gather(job.compression.kept, shipped_matcher().rules, job.sources)
    assert [event.line for event in evidence.events] == [1, 2, 3, 10, 11, 12, 30, 31, 32, 59, 60]
    assert evidence.skipped == 49


def test_a_short_log_is_read_whole() -> None:
    job = job_of("\n".join(prose(100)) + "\n")
    evidence = gather(job.compression.kept, shipped_matcher().rules, job.sources)
    assert ([event.line for event in evidence.events], evidence.skipped) == (list(range(1, 101)), 0)


def test_what_changes_from_run_to_run_is_normal_text() -> None:
    first = "worker gpu-17.cluster cannot open /scratch/run-81/part-3.bin at 0x7f21 after 12 tries"
    second = "worker gpu-4.cluster cannot open /data/x/part-9.bin at 0xdeadbeef after 3 tries"
    assert normal(first) == normal(second)
    assert normal(first) != normal(first.replace("open", "read"))


_BITS = [*"/ C: a 1 - . x 0x dead beef DEAD BEEF _ node = @ 12 # : // é １ () ' ,".split(), " ", "\t", "\x1c"]


@pytest.mark.slow
@pytest.mark.skipif(core is None, reason="the native core is not built here")
@given(st.lists(st.sampled_from(_BITS), max_size=14).map("".join) | st.text(max_size=40))
@settings(max_examples=examples(1500), deadline=None)
def test_the_native_core_makes_the_same_text_normal(text: str) -> None:
    assert normal(text) == normal_by_patterns(text)


@pytest.mark.parametrize(
    "text",
    [
        *"a1.b- a1.-- a1--.b2- 1.2.3.4.5 1.2.3.4x 10.0.0.1:22 C:/a/b/ /a//b/ 0x 0xg deadbeef-x1 3node7 _a1 / a.1.2.3.4".split(),
        *("12345678z", "ABCDEF01", "abcdef01", "http://x/y z", "", " "),
    ],
)
def test_normal_text_at_the_borders_of_names(text: str) -> None:
    assert normal(text) == normal_by_patterns(text)


def test_the_step_of_a_failure_is_that_of_its_own_log_or_of_the_job() -> None:
    broke = f"{BROKE}\n"
    assert report_of(steps(1, 9) + broke).diagnosis.step == 9
    assert report_of(broke).diagnosis.step is None
    assert report_of(steps(1, 9), broke, names=("rank0.log", "rank1.log")).diagnosis.step == 9
    assert report_of(steps(1, 9), steps(1, 7) + broke, names=("rank0.log", "rank1.log")).diagnosis.step == 7


PEER = "lost the connection to peer rank=%d"


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({3: PEER % 0}, None),  # the writer's neighbour, and not the writer
        ({3: PEER % 3}, None),
        ({0: PEER % 7}, None),
        ({2: PEER % 0, 3: PEER % 1}, None),  # less than none
        ({0: PEER % 1, 1: PEER % 2}, None),  # each names the next one
        ({0: "rank=0 is up", 1: PEER % 0}, None),
        ({0: "rank=0 is up", 3: "rank=3 is up"}, 0),
        ({0: "rank: 8 is up", 3: "[Rank 11] is up"}, 8),
        ({3: "[rank11]: boom"}, 8),
        ({3: "[rank11]: boom", 1: PEER % 8}, 8),
        ({3: "[rank11]: " + PEER % 8}, 8),
        ({3: "[rank0]: boom"}, None),
        ({3: "[rank11]: boom", 1: "[rank1]: boom"}, None),
        ({0: "[default0]:boom", 3: "[default3]:boom"}, None),  # numbers on the machine, as those of the folders
    ],
)
def test_the_folders_of_torchrun_are_numbered_by_their_writers_only(said: dict[int, str], first: int | None) -> None:
    names = tuple(f"run/attempt_0/{number}/stderr.log" for number in range(4))
    sources = job_of(*("x\n" for _ in names), names=names).sources
    events = [Event(n, source, 1, text, -1, body_start(text.encode())) for n, (source, text) in enumerate(said.items())]
    evidence = Evidence(events, (), sources)
    assert [evidence.rank_of_source(n) for n in range(4)] == [None if first is None else first + n for n in range(4)]
