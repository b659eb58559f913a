"""The journal: what was answered is on disk, in order, whatever is cut off or fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from service.errors import Busy, Unavailable
from service.journal import CONTROL, DATA, Definition, Entry, Journal, Record

A, B = Definition("a", 1, "rank0"), Definition("b", 2, "x/y", 3, "gpu-1")


def entry(stream: Definition, data: bytes, done: Callable[[Entry, Exception | None], None], offset: int = 0) -> Entry:
    return Entry(stream, DATA, offset, 7, 1000, data, done)


async def write(journal: Journal, *records: tuple[Definition, bytes]) -> list[Exception | None]:
    """Append all, wait for all."""
    loop = asyncio.get_running_loop()
    futures = []
    for stream, data in records:
        future: asyncio.Future[Exception | None] = loop.create_future()
        journal.append(entry(stream, data, lambda _, failure, future=future: future.set_result(failure)))  # type: ignore[misc]
        futures.append(future)
    return list(await asyncio.gather(*futures))


def recovered(folder: Path) -> list[Record]:
    journal = Journal(folder)
    try:
        return list(journal.recover())
    finally:
        journal.close()


def session(folder: Path, *records: tuple[Definition, bytes], **options: int) -> None:
    async def run() -> None:
        journal = Journal(folder, **options)
        list(journal.recover())
        journal.start()
        assert await write(journal, *records) == [None] * len(records)
        journal.close()

    asyncio.run(run())


def test_what_was_written_is_read_again_in_order(tmp_path: Path) -> None:
    session(tmp_path, (A, b"one\n"), (B, b"two\n"), (A, b""), (A, b"\0\xff" * 9))
    session(tmp_path, (B, b"three\n"))
    found = recovered(tmp_path)
    assert [(record.stream, record.data) for record in found] == [
        (A, b"one\n"),
        (B, b"two\n"),
        (A, b""),
        (A, b"\0\xff" * 9),
        (B, b"three\n"),
    ]
    assert [record.lsn for record in found] == [1, 2, 3, 4, 5]
    assert {(record.kind, record.key, record.at_ms) for record in found} == {(DATA, 7, 1000)}


def test_a_torn_tail_is_cut_at_every_length(tmp_path: Path) -> None:
    """Whatever part of the last record reached the disk, the records before it are whole, and writing goes on."""
    session(tmp_path, (A, b"first\n"), (A, b"second\n"))
    (segment,) = tmp_path.glob("*.journal")
    whole = segment.read_bytes()
    last = len(whole) - len(b"second\n") - 48
    for length in range(last, len(whole)):
        segment.write_bytes(whole[:length])
        assert [record.data for record in recovered(tmp_path)] == [b"first\n"], length
        assert segment.stat().st_size == last


@pytest.mark.parametrize("at", [30, 60, 90, 120, 150])
def test_a_flipped_bit_ends_the_segment_and_never_yields_wrong_bytes(tmp_path: Path, at: int) -> None:
    session(tmp_path, (A, b"first\n"), (A, b"second\n"))
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    data[at] ^= 4
    segment.write_bytes(data)
    assert [record.data for record in recovered(tmp_path)] in ([], [b"first\n"])


def test_segments_roll_and_are_deleted_once_all_in_them_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, segment=200)
        journal.start()
        for number in range(6):
            await write(journal, (A if number % 2 else B, b"x" * 150))
        assert journal.segments == 6
        journal.stored(A.owner, 4)
        assert journal.segments == 4  # lsn 2 and 4
        journal.stored(B.owner, 99)
        assert sorted(path.name for path in tmp_path.glob("*.journal")) == [f"{6:020d}.journal"]
        journal.stored(A.owner, 6)
        assert journal.segments == 0
        journal.close()

    asyncio.run(run())


def test_what_is_stored_of_an_earlier_life_frees_its_segments(tmp_path: Path) -> None:
    session(tmp_path, (A, b"one\n"))
    journal = Journal(tmp_path)
    assert [record.lsn for record in journal.recover()] == [1]
    journal.stored(A.owner, 1)
    assert not list(tmp_path.glob("*.journal"))
    journal.close()


def test_many_appends_share_a_sync(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path)
        journal.start()
        await write(journal, *[(A, b"x" * 100)] * 500)
        assert journal.syncs < 100
        journal.close()

    asyncio.run(run())


def test_a_full_disk_refuses_in_order_and_leaves_no_half_record(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the kernel fails the write half done."""
    import resource
    import signal

    async def run() -> None:
        journal = Journal(tmp_path)
        journal.start()
        assert await write(journal, (A, b"good\n")) == [None]
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            failures = await write(journal, (A, b"x" * 10_000), (B, b"behind it\n"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert [type(failure) for failure in failures] == [Unavailable, Unavailable]
        assert await write(journal, (B, b"again\n")) == [None]
        journal.close()

    asyncio.run(run())
    assert [record.data for record in recovered(tmp_path)] == [b"good\n", b"again\n"]


def test_beyond_its_limit_it_is_busy(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, limit=1000)
        journal.start()
        await write(journal, (A, b"x" * 1000))
        with pytest.raises(Busy):
            await write(journal, (A, b"x"))
        journal.close()

    asyncio.run(run())


def test_two_services_cannot_share_a_folder(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(DiagnoseError, match="another service"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_lsns_go_on_behind_what_the_database_knows(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path)
        journal.start(after=41)
        await write(journal, (A, b"x"))
        journal.append(Entry(A, CONTROL, 0, 0, 0, b"{}", lambda *_: None))
        journal.close()

    asyncio.run(run())
    assert [record.lsn for record in recovered(tmp_path)] == [42, 43]


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"{1:020d}.journal").write_bytes(os.urandom(100))
    assert recovered(tmp_path) == []
    assert (tmp_path / "notes.txt").read_text() == "mine"
