"""The journal: what was answered is on disk, in order, whatever is cut off or fails."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from service.errors import Busy, Unavailable
from service.journal import Entry, Journal, held
from service.segments import CONTROL, DATA, Damage, Definition, Reader, Record, first_lsn, framed

SEED = int(os.environ.get("DIAGNOSE_SEED", "1"))
FLIPS = int(os.environ.get("DIAGNOSE_FLIPS", "400"))
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


def read_segment(path: Path) -> Iterator[tuple[Record | Damage, int]]:
    """(record, where it ends) of all that can be read, from the beginning on."""
    reader = Reader(path)
    try:
        for record in reader.records(os.stat(path).st_size):
            yield record, reader.end
    finally:
        reader.close()


def recovered(folder: Path) -> list[Record]:
    """What is on disk: nothing of it is damaged."""
    found = surviving(folder)
    assert all(isinstance(record, Record) and not record.lost for record in found)
    return [record for record in found if isinstance(record, Record)]


def surviving(folder: Path) -> list[Record | Damage]:
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
    last = max(end for record, end in read_segment(segment) if isinstance(record, Record) and record.data == b"first\n")
    for length in range(last, len(whole)):
        segment.write_bytes(whole[:length])
        assert [record.data for record in recovered(tmp_path)] == [b"first\n"], length
        assert segment.stat().st_size == last


@pytest.mark.slow
def test_one_flipped_bit_costs_the_record_that_it_hits(tmp_path: Path) -> None:
    """Anywhere in a journal of many jobs: all other records are as they were, in order, and the hit one is named."""
    chance = random.Random(SEED)
    streams = [Definition(f"job{number}", 1 + number % 3, f"rank{number % 5}", number, f"n{number}") for number in range(12)]
    for part in range(8):
        session(
            tmp_path,
            *[(chance.choice(streams), f"{part} {number} ".encode() * chance.randrange(1, 9)) for number in range(15)],
            segment=3_000,
        )
    segments = sorted(tmp_path.glob("*.journal"))
    whole = {path: path.read_bytes() for path in segments}
    before = recovered(tmp_path)
    assert len(before) == 120
    assert len(segments) > 5
    for _ in range(FLIPS):
        path = chance.choice(segments)
        spoilt = bytearray(whole[path])
        bit = chance.randrange(8 * len(spoilt))
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        after = surviving(tmp_path)
        assert len(after) == len(before), bit
        wrong = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert len(wrong) <= 1, bit
        for old, new in wrong:
            assert new == old._replace(data=b"", lost=len(old.data)), bit
        for one in tmp_path.glob("*.damaged"):
            one.unlink()
        path.write_bytes(whole[path])


def test_a_damaged_segment_is_never_cut_and_is_set_aside_once_nobody_needs_it(tmp_path: Path) -> None:
    session(tmp_path, (A, b"first\n"), (B, b"second\n"), (A, b"third\n"))
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    at = data.index(b"second")
    data[at : at + 3] = b"???"
    segment.write_bytes(data)
    journal = Journal(tmp_path)
    assert [(record.data, record.lost) for record in journal.recover() if isinstance(record, Record)] == [
        (b"first\n", 0),
        (b"", len(b"second\n")),
        (b"third\n", 0),
    ]
    assert segment.read_bytes() == data
    assert journal.damaged == 1
    journal.stored(A.owner, 9)
    assert segment.exists()
    journal.stored(B.owner, 9)
    assert not segment.exists()
    assert segment.with_suffix(".damaged").read_bytes() == data
    assert journal.damaged == 1
    journal.close()


def test_a_page_of_zeros_costs_what_stood_in_it(tmp_path: Path) -> None:
    """A sector that the disk lost: what follows is found again."""
    session(tmp_path, *[(A, f"line {number:03d}\n".encode() * 10) for number in range(200)])
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    data[4096:8192] = bytes(4096)
    segment.write_bytes(data)
    found = surviving(tmp_path)
    good = [record.lsn for record in found if isinstance(record, Record) and not record.lost]
    damage = [one for one in found if isinstance(one, Damage)]
    assert len(damage) == 1
    assert len(good) >= 200 - 4096 // 150 - 2
    assert good[-1] == 200
    assert segment.stat().st_size == len(data)


def test_damage_at_the_end_is_no_torn_tail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last record is whole in length: somebody was told that it is stored."""
    session(tmp_path, (A, b"first\n"), (B, b"second\n"))
    (segment,) = tmp_path.glob("*.journal")
    data = segment.read_bytes()
    start = max(end for record, end in read_segment(segment) if isinstance(record, Record) and record.data == b"first\n")
    segment.write_bytes(data[:start] + bytes(b ^ 0x55 for b in data[start:]))
    found = surviving(tmp_path)
    assert [record.data for record in found if isinstance(record, Record)] == [b"first\n"]
    assert [one.size for one in found if isinstance(one, Damage)] == [len(data) - start]
    assert segment.stat().st_size == len(data)
    assert "torn" not in caplog.text


def test_a_torn_tail_behind_damage_is_not_cut(tmp_path: Path) -> None:
    """What stands behind damage may be evidence of what was lost."""
    session(tmp_path, (A, b"first\n"), (B, b"second\n"), (A, b"third\n"))
    (segment,) = tmp_path.glob("*.journal")
    ends = [end for _, end in read_segment(segment)]
    spoilt = bytearray(segment.read_bytes()[:-2])
    spoilt[ends[0] + 30] ^= 1
    segment.write_bytes(spoilt)
    surviving(tmp_path)
    (kept,) = [path for path in tmp_path.iterdir() if path.stat().st_size]
    assert kept.stat().st_size == len(spoilt)


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    """A file system had given the room, and lost power before the bytes came."""
    session(tmp_path, (A, b"first\n"))
    (segment,) = tmp_path.glob("*.journal")
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + bytes(5000))
    assert [record.data for record in recovered(tmp_path)] == [b"first\n"]
    assert segment.stat().st_size == size


def test_the_next_record_is_found_wherever_a_piece_of_the_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(tmp_path, (A, b"before\n"), (A, b"x" * 90), (A, b"after\n"))
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    at = data.index(b"x" * 90)
    for place in range(at - 90, at + 30):
        data[place] ^= 0xFF
    segment.write_bytes(data)
    for piece in range(9, 70):
        monkeypatch.setattr("service.segments._PIECE", piece)
        found = [record.data for record in surviving(tmp_path) if isinstance(record, Record) and not record.lost]
        assert found == [b"before\n", b"after\n"], piece


def test_a_name_may_be_as_long_as_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(tmp_path, (A, b"one\n"))
    for longest, read in ((len(A.as_bytes()), [b"one\n"]), (len(A.as_bytes()) - 1, [])):
        monkeypatch.setattr("service.segments._LONGEST_NAME", longest)
        assert [record.data for record in surviving(tmp_path) if isinstance(record, Record)] == read


def test_a_log_that_holds_records_cannot_pass_one_off(tmp_path: Path) -> None:
    """Who knows how records look writes one of another job into a log: it is not found when the record around it is damaged."""
    forged = b"".join(framed(0x1234, 99, DATA, B.as_bytes(), 0, 0, 1, b"isolate node n7\n"))
    session(tmp_path, (A, b"before\n"), (A, b"x" * 40 + forged + b"y" * 40), (A, b"after\n"))
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    at = data.index(b"x" * 40)
    for damaged in (range(at, at + 30), range(at - 90, at + 30)):
        spoilt = bytearray(data)
        for place in damaged:
            spoilt[place] ^= 0xFF
        segment.write_bytes(spoilt)
        kept = [record.data for record in surviving(tmp_path) if isinstance(record, Record) and not record.lost]
        assert kept == [b"before\n", b"after\n"]
        assert {record.stream for record in surviving(tmp_path) if isinstance(record, Record)} == {A}


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
        assert [first_lsn(path) for path in tmp_path.glob("*.journal")] == [6]
        journal.stored(A.owner, 6)
        assert journal.segments == 0
        journal.close()

    asyncio.run(run())


def test_nothing_is_deleted_while_a_backup_holds_it(tmp_path: Path) -> None:
    session(tmp_path, *[(A, b"x" * 3000)] * 3, segment=4096)
    journal = Journal(tmp_path, segment=4096)
    last = [record.lsn for record in journal.recover() if isinstance(record, Record)][-1]
    before = sorted(tmp_path.glob("*.journal"))
    with held(tmp_path):
        journal.stored(A.owner, last)
        assert sorted(tmp_path.glob("*.journal")) == before
        assert journal.segments == len(before)
    journal.stored(A.owner, last)
    assert not list(tmp_path.glob("*.journal"))
    journal.close()


def test_a_disk_that_is_read_only_keeps_what_nobody_needs_until_it_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that had stored it died of this once, and nothing was stored any more."""
    session(tmp_path, *[(A, b"x" * 3000)] * 3, segment=4096)
    journal = Journal(tmp_path, segment=4096)
    last = [record.lsn for record in journal.recover() if isinstance(record, Record)][-1]
    before = sorted(tmp_path.glob("*.journal"))

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", refuse)
        journal.stored(A.owner, last)
        journal.stored(A.owner, last)
        assert journal.segments == len(before)
    with held(tmp_path):  # a backup can still begin
        pass
    journal.stored(A.owner, last)
    assert not list(tmp_path.glob("*.journal"))
    assert (journal.segments, journal.size) == (0, 0)
    journal.close()


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
        assert {failure.retry_after_s for failure in failures if isinstance(failure, Unavailable)} == {5}
        assert await write(journal, (B, b"again\n")) == [None]
        journal.close()

    asyncio.run(run())
    assert [record.data for record in recovered(tmp_path)] == [b"good\n", b"again\n"]


def test_a_disk_that_stays_full_is_logged_once_and_not_for_each_sender(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    for _ in range(5):
        journal._tell(OSError(28, "No space left on device"))
    journal._tell(OSError(5, "Input/output error"))
    journal.close()
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition("] ")[2] for text in said] == ["No space left on device", "Input/output error"]


def test_beyond_its_limit_it_is_busy(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, limit=1000)
        journal.start()
        await write(journal, (A, b"x" * 1000))
        assert journal.segments == 1
        with pytest.raises(Busy) as refused:
            await write(journal, (A, b"x"))
        assert refused.value.retry_after_s == 10
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


# --- what is on disk


EARLIER = bytes.fromhex(
    "646961676e6f7365206a6f75726e616c20310a0000000000ce8dd1371d000000000000000000000000000000000000000000000000000000"
    "000000000000000001000000010000005b2261222c20312c202272616e6b30222c20332c20226770752d31225dbb41853204000000290000"
    "000000000005000000000000000700000000000000e80300000000000001000000020000006f6e650ad4fcc1ad020000002a000000000000"
    "0009000000000000000800000000000000e90300000000000001000000030000007b7d"
)
"""a segment as the first version wrote it: one stream, one record of data, one of control"""


def test_what_an_earlier_version_wrote_is_read_for_ever(tmp_path: Path) -> None:
    (tmp_path / f"{41:020d}.journal").write_bytes(EARLIER)
    stream = Definition("a", 1, "rank0", 3, "gpu-1")
    assert recovered(tmp_path) == [
        Record(41, DATA, stream, 5, 7, 1000, b"one\n"),
        Record(42, CONTROL, stream, 9, 8, 1001, b"{}"),
    ]
    assert DATA != CONTROL


def test_a_segment_is_read_as_far_as_it_has_grown_and_on_from_there(tmp_path: Path) -> None:
    """Whoever reads while it is written is given whole records only, each once."""
    session(tmp_path, (A, b"one\n"), (B, b"two\n"), (A, b"three\n"))
    (segment,) = tmp_path.glob("*.journal")
    ends = {end: record.data for record, end in read_segment(segment) if record.kind == DATA}
    reader = Reader(segment)
    for until in range(segment.stat().st_size + 1):
        found = [record.data for record in reader.records(until) if record.kind == DATA]
        assert found == ([ends[until]] if until in ends else []), until
    reader.close()


def test_what_is_no_segment_yields_nothing(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"some journal 1\n" + bytes(200))
    assert list(read_segment(other)) == []


def test_whole_segments_are_recovered_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session(tmp_path, (A, b"one\n"))
    session(tmp_path, (A, b"two\n"))
    assert len(recovered(tmp_path)) == 2
    assert caplog.messages == []


def test_damage_is_only_where_something_is_lost_that_was_promised(tmp_path: Path) -> None:
    """The end of the last segment may be torn. Of an earlier one nothing may be missing."""
    session(tmp_path, (A, b"one\n"))
    session(tmp_path, (A, b"two\n"))
    first, last = sorted(tmp_path.glob("*.journal"))
    for path in (first, last):
        path.write_bytes(path.read_bytes()[:-1])
    assert [one.path for one in surviving(tmp_path) if isinstance(one, Damage)] == [first]


# --- what it says about itself


def test_its_size_is_that_of_its_files_whoever_wrote_them(tmp_path: Path) -> None:
    def on_disk() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("*.journal"))

    async def run(*records: tuple[Definition, bytes]) -> None:
        journal = Journal(tmp_path, segment=300)
        list(journal.recover())
        assert journal.size == on_disk()
        journal.start()
        for record in records:
            await write(journal, record)
            assert journal.size == on_disk()
        journal.close()

    asyncio.run(run((A, b"x" * 400), (B, b"y")))
    asyncio.run(run((A, b"z" * 10), (A, b"")))
    (tmp_path / f"{99:020d}.journal").write_bytes(EARLIER[:-1])
    torn = Journal(tmp_path)
    list(torn.recover())
    assert torn.size == on_disk()
    torn.close()


def test_the_last_lsn_is_known_and_also_the_oldest_that_is_left(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, segment=1)
        assert journal.lsn == 0
        journal.start(after=9)
        for _ in range(3):
            await write(journal, (A, b"x"))
        assert (journal.lsn, journal.oldest) == (12, 10)
        journal.stored(A.owner, 11)
        assert journal.oldest == 12
        journal.stored(A.owner, 12)
        # None is left. What the database compares with this is a signed integer of 64 bits.
        assert journal.lsn < journal.oldest < 1 << 63
        journal.close()

    asyncio.run(run())


def test_who_copies_segments_is_told_how_far_each_is_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, segment=400)
        assert journal.durable() == []
        journal.start()
        await write(journal, (A, b"x" * 400))
        await write(journal, (A, b"y"))
        first, second = sorted(tmp_path.glob("*.journal"))
        assert journal.durable() == [
            (first, first.stat().st_size, False),
            (second, second.stat().st_size, True),
        ]
        journal.close()

    asyncio.run(run())


# --- who else needs a segment


def archived(folder: Path) -> Journal:
    """A journal of two segments, of which the database has all, and the archive nothing."""
    session(folder, (A, b"one\n"), (B, b"two\n"))
    session(folder, (A, b"three\n"))
    journal = Journal(folder, archives=True)
    list(journal.recover())
    for owner in (A.owner, B.owner):
        journal.stored(owner, 3)
    assert journal.segments == 2
    return journal


def test_a_segment_stays_until_the_archive_has_it_too(tmp_path: Path) -> None:
    journal = archived(tmp_path)
    journal.archived({A.owner: 2, B.owner: 1})
    assert journal.segments == 2
    journal.archived({B.owner: 2})
    assert [first_lsn(path) for path in tmp_path.glob("*.journal")] == [3]
    journal.archived({A.owner: 3})
    assert journal.segments == 0
    journal.close()


def test_a_segment_stays_until_the_database_has_it_though_the_archive_does(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, segment=1, archives=True)
        journal.start()
        await write(journal, (A, b"x"))
        journal.archived({A.owner: 1})
        assert journal.segments == 1
        journal.stored(A.owner, 1)
        assert journal.segments == 0
        await write(journal, (A, b"y"))
        journal.stored(A.owner, 2)
        assert journal.segments == 1
        journal.archived({A.owner: 2})
        assert journal.segments == 0
        journal.close()

    asyncio.run(run())


def test_the_archive_does_not_wait_for_a_segment_that_it_cannot_read(tmp_path: Path) -> None:
    journal = archived(tmp_path)
    journal.unreadable(min(tmp_path.glob("*.journal")))
    assert [first_lsn(path) for path in tmp_path.glob("*.journal")] == [3]
    journal.close()


# --- when nothing can be written


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path)
        journal.start()
        await write(journal, (A, b"one\n"))
        journal.close()
        with pytest.raises(Unavailable):
            journal.append(entry(A, b"two\n", lambda *_: None))

    asyncio.run(run())
    assert [record.data for record in recovered(tmp_path)] == [b"one\n"]


def test_what_waits_when_it_is_closed_is_written_and_answered(tmp_path: Path) -> None:
    async def run() -> list[Exception | None]:
        journal = Journal(tmp_path)
        journal.start()
        waiting = asyncio.create_task(write(journal, (A, b"one\n"), (B, b"two\n")))
        await asyncio.sleep(0)
        await asyncio.to_thread(journal.close)
        return await waiting

    assert asyncio.run(run()) == [None, None]
    assert [record.data for record in recovered(tmp_path)] == [b"one\n", b"two\n"]


def test_room_that_was_made_is_used_again(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path, segment=1, limit=1000)
        journal.start()
        await write(journal, (A, b"x" * 1000))
        with pytest.raises(Busy) as refused:
            await write(journal, (A, b"x"))
        assert refused.value.retry_after_s
        journal.stored(A.owner, 1)
        assert await write(journal, (A, b"x")) == [None]
        journal.close()

    asyncio.run(run())


def test_streams_are_told_apart_in_every_segment(tmp_path: Path) -> None:
    """Each segment names its streams itself, however many there are."""
    streams = [Definition("a", 1, f"rank{number}") for number in range(700)]
    for _ in range(2):
        session(tmp_path, *[(stream, stream.source.encode()) for stream in streams])
    for path in tmp_path.glob("*.journal"):
        found = [record for record, _ in read_segment(path) if record.kind == DATA]
        assert [record.data.decode() for record in found] == [record.stream.source for record in found]
        assert len(found) == 700


def test_what_is_written_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    session(tmp_path, (A, b"secret\n"))
    (segment,) = tmp_path.glob("*.journal")
    assert segment.stat().st_mode & 0o777 == 0o600
