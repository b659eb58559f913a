"""The cache on disk: bounded, shared by processes, and never in the way."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DIAGNOSE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MOST", 16 * 4096)
    return tmp_path


def key(name: object) -> str:
    return cache.key_of(str(name))


def test_above_its_bound_what_was_not_fetched_for_longest_goes(folder: Path) -> None:
    for age, name in enumerate(("a", "b", "c"), 1):
        cache.store("database", key(name), bytes(18_000))
        os.utime(folder / f"database-{key(name)}", (age, age))
    assert cache.fetch("database", key("a")) == bytes(18_000)
    cache.store("database", key("d"), bytes(18_000))
    assert [name for name in "abcd" if cache.fetch("database", key(name)) is not None] == ["a", "d"]


def test_small_files_count_as_what_they_take_of_the_disk(folder: Path) -> None:
    for number in range(100):
        cache.store("answer", key(number), b"yes")
    assert 0 < len(list(folder.iterdir())) <= 16


def test_files_of_others_stay_and_what_a_killed_process_left_goes(folder: Path) -> None:
    for name in ("notes.txt", ".answer-abandone", ".answer-writing_", "answer-notes"):
        (folder / name).write_bytes(bytes(50_000))
        os.utime(folder / name, (1, 1) if name != ".answer-writing_" else None)
    cache.store("answer", key("a"), bytes(50_000))
    left = {path.name for path in folder.iterdir()}
    assert left == {"notes.txt", ".answer-writing_", "answer-notes", f"answer-{key('a')}"}


def test_many_at_once_keep_the_bound_and_read_what_was_written_or_nothing(folder: Path) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 40):
            cache.store("answer", key(number), b"%d" % number)
            assert cache.fetch("answer", key(number)) in (b"%d" % number, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 4000, 1000)))
    cache.store("answer", key("last"), b"last")
    assert sum(max(path.stat().st_size, 4096) for path in folder.iterdir()) <= 16 * 4096
