"""Batches that come twice, too early, too late or from two writers; ends; a disk that is full; a service that stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service.errors import BadName, Busy, Conflict, OffsetGap, TooLarge, Unavailable
from service.intake.batch import Batch
from service.live.stream import End
from service.store import Store, attempts, quotas, tables
from tests.support.live import Hands, Live

Test = Callable[..., Coroutine[Any, Any, None]]


def live(**settings: Any) -> Callable[[Test], Callable[[Path], None]]:
    """The test gets a service that lives in its folder, and the hands of its clock."""

    def made(test: Test) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def inside() -> None:
                hands = Hands()
                async with Live(tmp_path, hands, **settings) as here:
                    await test(here, hands)

            asyncio.run(inside())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return made


def answer(accepted: Any) -> tuple[int, bool]:
    return accepted.next_offset, accepted.duplicate


def batches(here: Live, result: str) -> float:
    return float(here.telemetry.batches.labels(result)._value.get())


# --- with offsets: exactly once


@live()
async def test_pieces_follow_each_other_and_what_overlaps_is_skipped(here: Live, hands: Hands) -> None:
    assert answer(await here.send(b"mind the gap 1\n", offset=0)) == (15, False)
    assert answer(await here.send(b"mind the gap 1\nmind the gap 2\n", offset=0)) == (30, False)
    assert answer(await here.send(b"2\nmind the gap 3\n", offset=28)) == (45, False)
    assert answer(await here.send(b"gap 2\n", offset=24)) == (45, True)
    assert answer(await here.send(b"mind the gap 3\n", offset=30)) == (45, True)
    await here.jobs.fresh("job")
    assert await here.lines() == ["mind the gap 1", "mind the gap 2", "mind the gap 3"]
    assert (batches(here, "stored"), batches(here, "duplicate")) == (3, 2)
    assert here.telemetry.accepted_bytes._value.get() == 45


@live()
async def test_a_gap_is_refused_with_the_offset_that_is_wanted(here: Live, hands: Hands) -> None:
    await here.send(b"0123456789", offset=0)
    for offset in (11, 1000):
        with pytest.raises(OffsetGap) as refused:
            await here.send(b"x", offset=offset)
        assert refused.value.fields == {"expected_offset": 10}
    assert answer(await here.send(b"x", offset=10)) == (11, False)
    with pytest.raises(OffsetGap) as refused:
        await here.send(b"x", source="new", offset=1)
    assert refused.value.fields == {"expected_offset": 0}
    assert set(await here.ingest.received("job", None)) == {"s"}, "a refusal makes no source"


@live()
async def test_two_writers_of_one_name_are_told(here: Live, hands: Hands) -> None:
    head = b"a" * 300
    await here.send(head, offset=0)
    for other in (b"b", b"a" * 255 + b"b", b"ab"):
        with pytest.raises(Conflict, match="began with other bytes"):
            await here.send(other, offset=0)
    assert answer(await here.send(b"a" * 256 + b"b" * 44, offset=0)) == (300, True), "only its head is remembered"
    assert answer(await here.send(b"a" * 200, offset=0)) == (300, True)


@live()
async def test_an_empty_batch_enters_a_source_once(here: Live, hands: Hands) -> None:
    assert answer(await here.send(b"", offset=0)) == (0, False)
    assert answer(await here.send(b"", offset=0)) == (0, True)


# --- without offsets: at least once


@live(duplicates_s=10.0)
async def test_a_batch_without_offset_is_one_within_the_window(here: Live, hands: Hands) -> None:
    assert answer(await here.send(b"mind the gap\n")) == (13, False)
    hands.passed = 9.9
    assert answer(await here.send(b"mind the gap\n")) == (13, True)
    hands.passed = 10.0
    assert answer(await here.send(b"mind the gap\n")) == (26, False)
    hands.passed = 19.9
    assert answer(await here.send(b"mind the gap\n")) == (26, True)
    await here.jobs.fresh("job")
    assert len(await here.lines()) == 2


@live()
async def test_its_key_counts_before_its_content(here: Live, hands: Hands) -> None:
    assert answer(await here.send(b"a", key="1")) == (1, False)
    assert answer(await here.send(b"b", key="1")) == (1, True)
    assert answer(await here.send(b"a", key="2")) == (2, False)
    assert answer(await here.send(b"a")) == (3, False), "a key is not a content"
    assert answer(await here.send(b"a", source="t")) == (1, False), "keys are of one source"


@live(duplicates=2)
async def test_only_so_many_keys_are_remembered(here: Live, hands: Hands) -> None:
    for key in "123":
        assert answer(await here.send(b"x", key=key))[1] is False
    assert [answer(await here.send(b"x", key=key))[1] for key in "321"] == [True, True, False]


@live()
async def test_offsets_go_on_behind_what_came_without(here: Live, hands: Hands) -> None:
    await here.send(b"abc")
    assert answer(await here.send(b"def", offset=3)) == (6, False)
    assert answer(await here.send(b"ghi")) == (9, False)


# --- how much


@live(most_sources=2)
async def test_an_attempt_has_only_so_many_sources(here: Live, hands: Hands) -> None:
    for source in ("a", "b", "a"):
        await here.send(b"x", source=source)
    with pytest.raises(TooLarge, match="2 sources already") as refused:
        await here.send(b"x", source="c")
    assert refused.value.where == "c"
    await here.send(b"x", source="c", job="other")


@pytest.mark.slow
@live()
async def test_a_job_of_more_ranks_than_four_thousand_is_taken_as_the_service_comes(here: Live, hands: Hands) -> None:
    ranks = range(4200)
    await asyncio.gather(*(here.send(b"step 1\n", source=f"rank{rank}", rank=rank) for rank in ranks))
    await here.send(b"RuntimeError: boom\n", source="rank4100")
    await here.ingest.finish("job", None, End("exit", 7.0, 1))
    await here.jobs.fresh("job", report=True, within_s=60)
    assert len(await here.ingest.received("job", None)) == 4200
    assert (await here.attempts())[0].reason == "runtime_error"


@pytest.mark.parametrize(
    ("settings", "job", "size", "refusal"),
    [
        ({"queue_job": 100}, "job", 51, "this job sends faster"),
        ({"queue_job": 100}, "job", 50, None),
        ({"queue_job": 100}, "other", 101, None),
        ({"queue_all": 100}, "job", 51, "as much unread log data as it may"),
        ({"queue_all": 100}, "other", 51, "as much unread log data as it may"),
        ({"queue_all": 100}, "other", 50, None),
    ],
    ids=["job", "job-has-room", "other-job-is-empty", "all", "all-by-another", "all-has-room"],
)
def test_a_full_queue_is_busy(tmp_path: Path, settings: dict[str, int], job: str, size: int, refusal: str | None) -> None:
    async def run() -> None:
        hands = Hands()
        async with Live(tmp_path, hands, **settings) as here:
            await here.send(b"x", job="job")
            await here.send(b"x", job="other")
            for name in ("job", "other"):
                await here.jobs.fresh(name)
            attempt = here.jobs.live("job", None)
            assert attempt is not None
            attempt.received.bytes += 50  # as if they waited to be read
            here.jobs.accepted_bytes += 50
            if refusal is None:
                await here.send(b"y" * size, job=job)
            else:
                with pytest.raises(Busy, match=refusal) as refused:
                    await here.send(b"y" * size, job=job)
                assert refused.value.retry_after_s == 1.0
                assert batches(here, "busy") == 1
            assert batches(here, "stored") == 2 + (refusal is None)

    asyncio.run(run())


@live(queue_job=10, queue_all=10)
async def test_one_batch_may_be_larger_than_the_queue(here: Live, hands: Hands) -> None:
    assert answer(await here.send(b"x" * 1000)) == (1000, False)


@live(queue_job=10)
async def test_who_may_wait_waits_until_there_is_room_or_its_time_is_over(here: Live, hands: Hands) -> None:
    await here.send(b"x")
    await here.jobs.fresh("job")
    attempt = here.jobs.live("job", None)
    assert attempt is not None
    attempt.received.bytes += 10
    batch = Batch(job="job", source="s", data=b"yy")
    late = asyncio.create_task(here.ingest.accept(batch, wait_s=5.0))
    await asyncio.sleep(0.05)
    assert not late.done()
    hands.passed = 5.0
    with pytest.raises(Busy):
        await late
    soon = asyncio.create_task(here.ingest.accept(batch, wait_s=5.0))
    await asyncio.sleep(0.05)
    assert not soon.done()
    attempt.received.bytes -= 10
    assert answer(await soon) == (3, False)


# --- ends and coming and going


@live()
async def test_an_end_is_on_disk_and_read_behind_what_came_before(here: Live, hands: Hands) -> None:
    await here.send(b"RuntimeError: boom", attempt=3)
    assert await here.ingest.finish("job", None, End("exit", 7.0, 137, 9)) == 3
    await here.jobs.fresh("job", report=True)
    (row,) = await here.attempts()
    assert (row.state, row.ended_by, row.ended_at, row.exit_code, row.signal) == ("ended", "exit", 7.0, 137, 9)
    assert (row.outcome, await here.lines()) == ("failed", ["RuntimeError: boom"])
    with pytest.raises(BadName):
        await here.ingest.finish("", None, End("exit", 7.0))


@live()
async def test_what_came_before_a_refused_batch_is_stored(here: Live, hands: Hands) -> None:
    def batch(offset: int, data: bytes = b"0123456789") -> Batch:
        return Batch(job="job", source="s", offset=offset, data=data)

    begun = [await here.ingest.begin(batch(offset)) for offset in (0, 10, 0)]
    assert [answer(await one) for one in begun] == [(10, False), (20, False), (20, True)]
    last = await here.ingest.begin(batch(20))
    with pytest.raises(OffsetGap):
        await here.ingest.begin(batch(99))
    assert answer(await last) == (30, False)
    assert (await here.ingest.received("job", None))["s"].durable == 30


@live()
async def test_new_jobs_of_one_request_are_opened_in_one_transaction(here: Live, hands: Hands) -> None:
    await here.send(b"was there before\n", job="job-7")
    asked: list[int] = []
    one_by_one = attempts.open_attempts

    def noted(connection: Any, some: Any) -> Any:
        asked.append(len(some))
        return one_by_one(connection, some)

    many = [Batch(job=f"job-{number}", source="s", data=b"x\n", labels={"user": f"u{number}"}) for number in range(40)]
    wrong = [Batch(job="no name", source="s", data=b"x\n"), Batch(job="job-41", source="s", rank=-1, data=b"x\n")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "open_attempts", noted)
        await here.ingest.open_together([*many, *wrong, *many], None)
    assert sum(asked) == 39
    assert len(asked) <= 2
    found = {row.name: row.user for row in await here.store.aread(lambda c: c.execute(select(tables.jobs)).all())}
    assert found == {"job-7": None} | {f"job-{number}": f"u{number}" for number in range(40) if number != 7}
    for one in many:
        assert (await (await here.ingest.begin(one))).next_offset in (2, 19)


@live()
async def test_a_job_that_a_quota_may_refuse_is_not_opened_before_its_turn(here: Live, hands: Hands) -> None:
    await here.store.awrite(lambda connection: quotas.limit(connection, "default", {"jobs": 1}))
    await here.quotas.refresh()
    await here.ingest.open_together([Batch(job=f"job-{number}", source="s", data=b"x\n") for number in range(3)], None)
    assert len(here.jobs) == 0


@live()
async def test_a_duplicate_is_answered_when_what_it_repeats_is_on_disk(here: Live, hands: Hands) -> None:
    first = await here.ingest.begin(Batch(job="job", source="s", offset=0, data=b"abc"))
    again = await here.ingest.begin(Batch(job="job", source="s", offset=0, data=b"abc"))
    stream = (await here.ingest.received("job", None))["s"]
    assert (stream.received, stream.durable) == (3, 0)
    assert answer(await again) == (3, True)
    assert stream.durable == 3
    assert answer(await first) == (3, False)


@live()
async def test_what_is_received_is_told_while_the_job_is_live(here: Live, hands: Hands) -> None:
    assert await here.ingest.received("job", None) == {}
    await here.send(b"abc", rank=3, node="gpu-1")
    for number in (None, 1):
        found = (await here.ingest.received("job", number))["s"]
        assert (found.durable, found.definition.rank, found.definition.node) == (3, 3, "gpu-1")
        assert found.last_seen == hands.clock.now()
    assert await here.ingest.received("job", 2) == {}


@live()
async def test_nothing_is_accepted_once_it_stops(here: Live, hands: Hands) -> None:
    await here.send(b"abc")
    here.ingest.close()
    with pytest.raises(Unavailable, match="is stopping") as refused:
        await here.send(b"def")
    assert refused.value.retry_after_s == 2


@live()
async def test_names_are_checked_before_anything_is_made(here: Live, hands: Hands) -> None:
    with pytest.raises(BadName):
        await here.send(b"x", rank=-1)
    assert len(here.jobs) == 0


@live()
async def test_an_attempt_that_left_the_memory_while_a_batch_waited_is_loaded_again(here: Live, hands: Hands) -> None:
    await here.send(b"abc", offset=0)
    await here.jobs.fresh("job")
    gone = here.jobs.live("job", None)
    assert gone is not None
    await here.until(lambda: gone.idle)
    gone.received.bytes += 1 << 40  # its queue is full
    waiting = asyncio.create_task(here.ingest.accept(Batch(job="job", source="s", offset=3, data=b"def"), wait_s=10.0))
    await asyncio.sleep(0.05)
    assert gone.scanner.release(gone)
    here.jobs._drop(gone)
    gone.received.bytes -= 1 << 40
    assert answer(await waiting) == (6, False)
    assert here.jobs.live("job", None) not in (None, gone)


# --- a disk that is full


class Full(Exception):
    """What the journal says then."""


@live()
async def test_what_could_not_be_written_may_be_sent_again(here: Live, hands: Hands) -> None:
    await here.send(b"abc", offset=0)
    await here.send(b"k1", source="t", key="1")
    held: list[Any] = []
    append, here.journal.append = here.journal.append, held.append  # type: ignore[method-assign]
    lost = [
        await here.ingest.begin(Batch(job="job", source="s", offset=3, data=b"def")),
        await here.ingest.begin(Batch(job="job", source="s", offset=3, data=b"def")),
        await here.ingest.begin(Batch(job="job", source="t", key="2", data=b"k2")),
        await here.ingest.begin(Batch(job="job", source="new", offset=0, data=b"other")),
    ]
    attempt = here.jobs.live("job", None)
    assert attempt is not None
    assert attempt.received.unanswered == 3
    assert not attempt.idle
    here.journal.append = append  # type: ignore[method-assign]
    told = asyncio.gather(*lost, return_exceptions=True)
    await asyncio.sleep(0)  # the duplicate waits for what it repeats
    for entry in held:
        entry.done(entry, Full("no space left"))
    said = await told
    assert [type(one) for one in said] == [Full, Unavailable, Full, Full]
    assert "could not be written to disk" in str(said[1])
    assert attempt.received.unanswered == 0
    found = await here.ingest.received("job", None)
    assert {name: (one.received, one.durable) for name, one in found.items()} == {"s": (3, 3), "t": (2, 2), "new": (0, 0)}
    assert answer(await here.send(b"def", offset=3)) == (6, False)
    assert answer(await here.send(b"k2", source="t", key="2")) == (4, False)
    assert answer(await here.send(b"k1", source="t", key="1")) == (4, True)
    assert answer(await here.send(b"another", source="new", offset=0)) == (7, False), "it had begun with nothing"
    held.clear()
    here.journal.append = held.append  # type: ignore[method-assign]
    ending = asyncio.create_task(here.ingest.finish("job", None, End("exit", 7.0)))
    while not held:
        await asyncio.sleep(0)
    here.journal.append = append  # type: ignore[method-assign]
    held[0].done(held[0], Full("no space left"))
    with pytest.raises(Full):
        await ending
    assert attempt.received.unanswered == 0
    assert attempt.end is None


def test_what_was_answered_is_there_again_after_a_crash(tmp_path: Path) -> None:
    """The database knows of nothing: all comes from the journal."""

    async def first() -> None:
        here = Live(tmp_path)
        async with here:
            await here.send(b"mind the gap 1\n", offset=0, rank=2)
            await here.send(b"mind the gap 2\n", key="k")
            await here.send(b"mind the gap 3\n", source="t")
            await here.ingest.finish("job", None, End("exit", 7.0, 0))

    def forget() -> None:
        store = Store.in_folder(tmp_path)
        store.write(lambda connection: connection.exec_driver_sql("delete from jobs"))
        store.close()

    async def second() -> None:
        async with Live(tmp_path) as here:
            assert here.again == 4
            assert answer(await here.send(b"mind the gap 2\n", key="k")) == (30, True)
            assert answer(await here.send(b"mind the gap 1\n", offset=0)) == (30, True)
            with pytest.raises(Conflict):
                await here.send(b"other\n", offset=0)
            await here.jobs.fresh("job", report=True)
            assert await here.lines() == [f"mind the gap {n}" for n in (1, 2, 3)]
            (row,) = await here.attempts()
            assert (row.state, row.exit_code) == ("ended", 0)

    asyncio.run(first())
    forget()
    asyncio.run(second())
