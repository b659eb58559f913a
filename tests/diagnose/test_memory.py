"""What is remembered of lines changes no verdict, has a bound, and is worked out once."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import memory
from diagnose.compression.kept_log import NOTABLE
from diagnose.compression.snapshot import NOTABLE_ID, StoredLine
from diagnose.job import Job
from diagnose.matching.matcher import Matcher
from diagnose.memory import Memory, remembered
from diagnose.reading.sources import Source
from tests.conftest import ROOT
from tests.support.logs import shipped_matcher

_LOGS = [
    ["job123/gpu-11.log", "job123/gpu-13.log"],
    ["nvlink/gpu-11.log", "nvlink/gpu-12.log"],
    ["oom.log.gz"],
    ["healthy-huggingface.log"],
    ["assertion.log"],
    ["node.log"],
]


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return shipped_matcher()


def _bytes(name: str) -> bytes:
    path: Path = ROOT / "fixtures" / "logs" / name
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _job(names: list[str], matcher: Matcher) -> Job:
    return Job("job", [Source(name, None) for name in names], matcher)


@settings(max_examples=6, deadline=None)
@given(
    names=st.sampled_from(_LOGS),
    room=st.sampled_from([0, 20_000, 16 << 20]),
    chunk=st.integers(8_000, 80_000),
    seed=st.integers(0, 1 << 32),
)
def test_a_job_that_was_judged_on_the_way_gets_the_verdict_of_one_that_was_judged_at_the_end(
    matcher: Matcher, names: list[str], room: int, chunk: int, seed: int
) -> None:
    chance = random.Random(seed)
    texts = [_bytes(name) for name in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_LINES", Memory(room))
        job = _job(names, matcher)
        left = dict.fromkeys(range(len(texts)), 0)
        while left:
            source = chance.choice(list(left))
            text, at = texts[source], left[source]
            left[source] = at + chance.randint(1, chunk)
            job.feed(source, text[at : left[source]])
            if left[source] >= len(text):
                del left[source]
            job.report(running=True)
        for source in range(len(texts)):
            job.close(source)
        found = job.report()
        patch.setattr(memory, "_LINES", Memory(16 << 20))
        assert _anew(job).report() == found


def _anew(job: Job) -> Job:
    """The same job with nothing that an earlier judgement may have left in it."""
    snapshot = job.snapshot()
    rules = job.compression.matcher.rules
    kept = [
        StoredLine(source, line, text, NOTABLE_ID if rule == NOTABLE else rules[rule].id if rule >= 0 else None, cut)
        for source, line, text, rule, cut in job.compression.kept.rows()
    ]
    other = Job(job.id, job.sources, job.compression.matcher)
    other.restore(snapshot, kept)
    return other


def test_what_is_asked_twice_is_worked_out_once() -> None:
    asked = []

    @remembered
    def length(text: str, more: int) -> int:
        asked.append(text)
        return len(text) + more

    assert [length("one line of test_memory", 1), length("one line of test_memory", 1)] == [24, 24]
    assert length("one line of test_memory", 2) == 25
    assert len(asked) == 2


def test_an_error_is_not_remembered() -> None:
    tried = []

    @remembered
    def once(text: str) -> str:
        tried.append(text)
        if len(tried) == 1:
            raise TimeoutError
        return text

    with pytest.raises(TimeoutError):
        once("a line that takes long")
    assert once("a line that takes long") == "a line that takes long"


def test_it_has_a_bound_and_keeps_what_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, asked = Memory(100_000), []
    monkeypatch.setattr(memory, "_LINES", lines)

    @remembered
    def seen(text: str) -> int:
        asked.append(text)
        return len(asked)

    for number in range(10_000):
        seen(f"line {number}")
        assert seen("again and again") == 2
    assert len(lines) < 2 * 100_000 / 300 + 2
    assert seen("line 0") == 10_002  # forgotten, and worked out again
