"""Sources that were read apart come to the same as sources that were read one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.compression import parts
from diagnose.compression.folds import KEEP, Folding
from diagnose.compression.kept_log import Compression
from diagnose.compression.snapshot import snapshot
from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(load(), reserved=EARLY)


def log(rank: int, steps: int) -> bytes:
    lines = [
        f"[rank{rank}]: iteration {n}/ 9000 | lm loss: {n % 64}.000000E+00 | grad norm: {n % 8}.000 |" for n in range(1, steps)
    ]
    odd = [f"[rank{rank}]: shard {n} of the daemon is parked, quota {n * 2}.5" for n in range(40)]
    end = [f"[rank{rank}]: Traceback (most recent call last):", f"[rank{rank}]: KeyError: 'k{rank}'", "half a line"]
    return "\n".join(lines + odd + end).encode()


def read(compression: Compression, number: int, data: bytes) -> None:
    for at in range(0, len(data), 4096):
        compression.feed(number, data[at : at + 4096])
    compression.close(number)


@pytest.mark.slow
@pytest.mark.parametrize("folding", [None, Folding(sounds, KEEP)])
@pytest.mark.parametrize("logs", [3, 12], ids=["few", "more than have room for all points"])
def test_the_same_comes_out(matcher: Matcher, tmp_path: Path, logs: int, folding: Folding | None) -> None:
    texts = [log(rank, 200 + 90 * rank) for rank in range(logs)]
    whole = Compression(matcher, folding)
    for number, text in enumerate(texts):
        read(whole, number, text)
    joined = Compression(matcher, folding)
    for number, text in enumerate(texts):
        part = Compression(matcher, folding)
        read(part, number, text)
        parts.write(part, tmp_path / str(number))
        parts.join(joined, tmp_path / str(number))
    assert list(tmp_path.iterdir()) == []
    assert list(joined.kept.rows()) == list(whole.kept.rows())
    assert joined.counts == whole.counts
    assert joined.facts == whole.facts
    assert joined.series_names == whole.series_names
    for number in range(logs):
        ours, theirs = joined.streams[number].series, whole.streams[number].series
        assert {name: (one.room, list(one.table)) for name, one in ours.items()} == {
            name: (one.room, list(one.table)) for name, one in theirs.items()
        }
    assert len(joined.folds()) == len(whole.folds())


def test_dumps_are_found_in_parts_too(matcher: Matcher, tmp_path: Path) -> None:
    text = (ROOT / "fixtures" / "logs" / "silent.log").read_bytes() + (
        b'Current thread 0x00007f1c2a3ff700 (most recent call first):\n  File "/w/train.py", line 31 in encode\n'
    )
    whole, joined = Compression(matcher), Compression(matcher)
    part = Compression(matcher)
    for compression in (whole, part):
        read(compression, 0, text)
    parts.write(part, tmp_path / "0")
    parts.join(joined, tmp_path / "0")
    assert list(joined.kept.with_dumps()) == list(whole.kept.with_dumps())
    assert list(whole.kept.with_dumps())
    assert snapshot(joined)
