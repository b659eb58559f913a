"""Files, folders, archives and growing files; what cannot be read says so."""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose.reading.sources import RESTART, Follower, Restart, Source, find

TEXT = b"".join(b"line %d of a log\n" % number for number in range(200_000))


def read(path: Path) -> tuple[bytes, str | None]:
    source = Source(str(path), path)
    return b"".join(source.chunks()), source.problem


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip of two members": lambda text: gzip.compress(text[:1000]) + gzip.compress(text[1000:]),
    "xz": lambda text: lzma.compress(text, preset=0),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "zstd of two frames": lambda text: zstandard.compress(text[:1000]) + zstandard.compress(text[1000:]),
}


@functools.cache
def packed(name: str) -> bytes:
    return PACKERS[name](TEXT)


@pytest.mark.parametrize("name", PACKERS)
def test_archives_are_known_by_their_content(tmp_path: Path, name: str) -> None:
    (tmp_path / "log").write_bytes(packed(name))
    assert read(tmp_path / "log") == (TEXT, None)


def test_pieces_of_a_file_end_with_a_line_where_one_ends_near(tmp_path: Path) -> None:
    long = b"x" * 3_000_000
    (tmp_path / "log").write_bytes(TEXT + long + b"\n" + TEXT)
    pieces = list(Source("log", tmp_path / "log").chunks())
    assert b"".join(pieces) == TEXT + long + b"\n" + TEXT
    assert [piece.endswith(b"\n") for piece in pieces] == [True, False, False, True, True, True]
    assert max(map(len, pieces)) <= 1 << 21


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_an_archive_that_was_cut_gives_what_it_has_and_says_so(tmp_path: Path, name: str) -> None:
    whole = packed(name)
    (tmp_path / "log").write_bytes(whole[: len(whole) // 2])
    data, problem = read(tmp_path / "log")
    assert TEXT.startswith(data)
    assert data
    assert "cut off" in (problem or "")


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_an_archive_that_is_damaged_gives_what_it_has_and_says_so(tmp_path: Path, name: str) -> None:
    damaged = bytearray(packed(name))
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = bytes(40)
    (tmp_path / "log").write_bytes(damaged)
    assert "corrupt" in (read(tmp_path / "log")[1] or "")


def test_what_stands_before_the_damage_is_read(tmp_path: Path) -> None:
    chance = random.Random(1)
    whole = b"".join(b"step %d loss %.9f\n" % (step, chance.random()) for step in range(20_000))
    damaged = bytearray(gzip.compress(whole))
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = bytes(40)
    (tmp_path / "log").write_bytes(damaged)
    data, problem = read(tmp_path / "log")
    assert data.startswith(whole[: len(whole) // 3])
    assert "corrupt" in (problem or "")


def test_an_archive_of_another_kind_is_no_log_and_the_remedy_unpacks_it(tmp_path: Path) -> None:
    path = tmp_path / "a log.bz2"
    path.write_bytes(bz2.compress(TEXT))
    assert read(path) == (b"", "this is not a log, but a bzip2 archive")
    (problem,) = find([str(path)]).problems
    assert problem.remedy == f"bzip2 -dc '{path}' | diagnose replay - reads it"


def test_a_packed_folder_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(TEXT)
    with tarfile.open(tmp_path / "logs.tgz", "w:gz") as archive:
        archive.add(tmp_path / "x.log")
    (problem,) = find([str(tmp_path / "logs.tgz")]).problems
    assert problem.what == "this is not a log, but a tar archive"


def test_what_is_no_log_in_a_folder_is_passed_over_and_named(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_bytes(TEXT)
    (tmp_path / "core.4711").write_bytes(b"\x7fELF\2\1\1" + bytes(100))
    found = find([str(tmp_path)])
    assert [source.name for source in found.sources] == [str(tmp_path / "rank0.log")]
    assert ([problem.where for problem in found.passed_over], found.problems) == ([str(tmp_path / "core.4711")], [])


def test_a_folder_without_a_log_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "core.4711").write_bytes(b"\x7fELF\2\1\1" + bytes(100))
    (problem,) = find([str(tmp_path)]).problems
    assert problem.where == str(tmp_path / "core.4711")
    assert problem.what == "this is not a log, but a program, a library or a memory dump"


def test_a_name_that_is_almost_right_is_answered_with_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "slurm-8812.out").write_bytes(TEXT)
    (problem,) = find([str(tmp_path / "slurm-8821.out")]).problems
    assert problem.remedy == f"did you mean {tmp_path}/slurm-8812.out?"


def test_a_pipe_is_not_looked_at_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (source,) = find([str(tmp_path / "pipe")]).sources
    assert source.ends() == (b"", b"")


def test_a_folder_gives_its_logs_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ["rank10.log", "rank2.log", "node-1/rank0.out", "model.safetensors", ".hidden", "empty.log"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"" if name == "empty.log" else b"x\n")
    found = find([str(tmp_path)])
    assert [os.path.relpath(source.name, tmp_path) for source in found.sources] == [
        "node-1/rank0.out",
        "rank2.log",
        "rank10.log",
    ]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: None, "no such file or folder"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.mkdir(), "has no logs"),
    ],
)
def test_a_path_without_a_log_says_why(tmp_path: Path, make: object, what: str) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    (problem,) = find([str(tmp_path / "x")]).problems
    assert what in str(problem)
    assert problem.remedy


def test_one_bad_path_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_bytes(b"x\n")
    found = find([str(tmp_path / "none"), str(tmp_path / "*.log")])
    assert (len(found.sources), len(found.problems)) == (1, 1)


def polled(follower: Follower) -> list[bytes | Restart]:
    return list(follower.poll())


def test_a_growing_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = Follower(Source(str(path), path))
    assert polled(follower) == []  # not there yet
    path.write_bytes(b"one\ntw")
    assert polled(follower) == [b"one\ntw"]
    assert polled(follower) == []
    with path.open("ab") as file:
        file.write(b"o\n")
    assert polled(follower) == [b"o\n"]


def test_a_rotated_file_is_read_to_its_end_and_its_successor_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    follower = Follower(Source(str(path), path))
    assert polled(follower) == [b"old\n"]
    with path.open("ab") as file:
        file.write(b"last\n")
    path.rename(tmp_path / "log.1")
    assert polled(follower) == [b"last\n"]
    path.write_bytes(b"new\n")
    assert polled(follower) == [RESTART, b"new\n"]


def test_a_truncated_file_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a long line\n")
    follower = Follower(Source(str(path), path))
    assert polled(follower) == [b"a long line\n"]
    path.write_bytes(b"short\n")
    assert polled(follower) == [RESTART, b"short\n"]
