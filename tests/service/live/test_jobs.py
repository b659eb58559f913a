"""Which attempts are in memory: opened once, superseded, evicted, withdrawn, found again after a restart; who is told what."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from diagnose.knowledge.rules import Rule
from diagnose.matching.scan import Scan
from service.errors import Conflict, Unavailable
from service.live.stream import End
from service.store.flush import Flush
from service.store.tasks import Wanted
from tests.service.intake.test_ingest import live
from tests.support.live import Hands, Live


@live()
async def test_many_who_open_one_job_at_once_get_one_attempt(here: Live, hands: Hands) -> None:
    found = await asyncio.gather(*(here.jobs.open("job", number) for number in (None, 1, None, 1)))
    assert len({id(one) for one in found}) == 1
    assert [kind for kind, _ in here.heard()] == ["job.started"]
    many = await asyncio.gather(*(here.jobs.open(f"job{number}", None) for number in range(100)))
    assert len({one.id for one in many}) == 100
    assert len(here.jobs) == 101
    assert here.telemetry.live_jobs._value.get() == 101


@live()
async def test_a_new_attempt_ends_those_before_it(here: Live, hands: Hands) -> None:
    await here.send(b"RuntimeError: boom\n", attempt=1)
    hands.passed = 60
    assert (await here.send(b"again\n", attempt=2)).attempt == 2
    assert (await here.send(b"more\n")).attempt == 2, "the latest is meant"
    for number in (1, 2):
        await here.jobs.fresh("job", number, report=True)
    first, second = await here.attempts()
    assert (first.state, first.ended_by, first.ended_at) == ("ended", "superseded", hands.clock.now() - 60)
    assert (second.state, second.ended_by) == ("running", None)


@live()
async def test_labels_are_added_to_those_that_there_are(here: Live, hands: Hands) -> None:
    await here.send(b"one\n", labels={"user": "kim", "gpus": "8"})
    await here.send(b"two\n", labels={"user": "lee", "cluster": "c"})
    await here.send(b"three\n")
    await here.jobs.fresh("job")
    assert (await here.attempts())[0].labels == {"user": "lee", "gpus": "8", "cluster": "c"}


@live()
async def test_what_is_stored_is_told(here: Live, hands: Hands) -> None:
    await here.send(b"iteration 1 loss 2.0\n")
    await here.jobs.fresh("job")
    await here.send(b"RuntimeError: boom\n")
    await here.jobs.fresh("job", report=True)
    numbers = here.telemetry
    assert (numbers.read_lines._value.get(), numbers.kept_lines._value.get(), numbers.read_bytes._value.get()) == (2, 1, 40)
    await here.ingest.finish("job", None, End("exit", 7.0, 1))
    await here.jobs.fresh("job", report=True)
    heard = here.heard()
    assert [kind for kind, _ in heard if kind != "job.progress"] == [
        "job.started", "job.diagnosed", "job.diagnosed", "job.ended",
    ]  # fmt: skip
    progress = next(data for kind, data in heard if kind == "job.progress")
    assert (progress["job"], progress["attempt"], progress["step"], progress["lines_in"]) == ("job", 1, 1.0, 1)
    final = [(data["final"], data["reason"]) for kind, data in heard if kind == "job.diagnosed"]
    assert final == [(False, "runtime_error"), (True, "runtime_error")]
    assert heard[-1][1]["exit_code"] == 1
    assert (here.jobs.unstored, here.jobs.queued) == (0, 0)


@live()
async def test_waiting_for_what_is_not_in_memory_is_over_at_once(here: Live, hands: Hands) -> None:
    await here.jobs.fresh("nobody", report=True, within_s=60)
    await here.jobs.open("job", None)
    await here.jobs.fresh("job", within_s=60)


# --- leaving


@live(hang_s=100.0, most_live=3)
async def test_what_ended_leaves_after_a_while_and_the_least_used_where_there_are_too_many(here: Live, hands: Hands) -> None:
    for number in range(4):
        await here.send(b"one\n", job=f"job{number}")
        await here.jobs.fresh(f"job{number}")
        hands.passed += 1
    await here.ingest.finish("job3", None, End("exit", 7.0, 0))
    await here.jobs.fresh("job3", report=True)

    def all_idle() -> bool:
        return all(one.idle for one in (here.jobs.live(f"job{n}", None) for n in range(4)) if one is not None)

    await here.until(all_idle)
    assert here.jobs.evict() == 1
    assert [here.jobs.live(f"job{n}", None) is None for n in range(4)] == [True, False, False, False]
    hands.passed = 33.0  # job3 was used for the last time when 4 seconds had passed
    assert here.jobs.evict() == 0
    hands.passed = 34.1
    assert here.jobs.evict() == 1
    assert here.jobs.live("job3", None) is None
    hands.passed = 201.0  # job1: at 1
    assert here.jobs.evict() == 0
    hands.passed = 201.1
    await here.until(all_idle)
    assert here.jobs.evict() == 1
    assert [here.jobs.live(f"job{n}", None) is None for n in range(4)] == [True, True, False, True]
    assert (await here.send(b"two\n", job="job0")).next_offset == 8, "it comes back with what it was"


@live()
async def test_only_what_has_ended_is_withdrawn_and_stays_so_meanwhile(here: Live, hands: Hands) -> None:
    await here.send(b"one\n")
    async with here.jobs.withdrawn("job") as out:
        assert not out, "it runs"
    await here.ingest.finish("job", None, End("exit", 7.0, 0))
    async with here.jobs.withdrawn("job", 1) as out:
        assert out
        assert len(here.jobs) == 0
        for number in (1, None):
            async with here.jobs.withdrawn("job", number) as twice:
                assert not twice, "somebody else did"
        async with here.jobs.withdrawn("other") as other:
            assert other
        with pytest.raises(Unavailable, match="is being deleted"):
            await here.jobs.open("job", None)
        with pytest.raises(Unavailable, match="is being deleted"):
            await here.jobs.open("job", 1)
        await here.jobs.open("job", 2)
    await here.jobs.open("job", 1)


@live()
async def test_an_attempt_whose_lines_were_deleted_does_not_go_on(here: Live, hands: Hands) -> None:
    await here.send(b"one\n", offset=0)
    await here.ingest.finish("job", None, End("exit", 7.0, 0))
    async with here.jobs.withdrawn("job"):
        await here.store.awrite(lambda connection: connection.exec_driver_sql("update attempts set lines_deleted = 1.0"))
    with pytest.raises(Conflict, match="its log was deleted"):
        await here.send(b"two\n", offset=4)
    assert (await here.send(b"two\n", attempt=2)).next_offset == 4


# --- sweeping, restarts


def test_who_was_silent_over_a_restart_has_ended_and_who_made_steps_hangs(tmp_path: Path) -> None:
    hands = Hands()

    async def first() -> None:
        async with Live(tmp_path, hands, hang_s=100.0, silence_s=1000.0) as here:
            await here.send(b"iteration 1 loss 2.0\n", job="hangs")
            await here.send(b"hello\n", job="quiet")
            for job in ("hangs", "quiet"):
                await here.jobs.fresh(job)

    async def second() -> None:
        async with Live(tmp_path, hands, hang_s=100.0, silence_s=1000.0) as here:
            assert (here.again, len(here.jobs)) == (0, 0)
            await here.jobs._sweep()
            assert [here.jobs.live(job, None) is not None for job in ("hangs", "quiet")] == [True, False]
            hands.passed = 1200.1
            await here.jobs._sweep()
            quiet = here.jobs.live("quiet", None)
            assert quiet is not None
            await here.until(lambda: quiet.end is not None)
            await here.jobs.fresh("quiet", report=True)
            (row,) = await here.attempts("quiet")
            assert (row.state, row.ended_by, row.ended_at) == ("ended", "silence", 1_800_000_000.0)

    asyncio.run(first())
    shutil.rmtree(tmp_path / "journal")  # what is stored is not in it for ever
    hands.passed = 200.0
    asyncio.run(second())


def test_an_end_that_the_log_told_while_it_was_read_again_is_not_lost(tmp_path: Path) -> None:
    """Recovery may take long, and there is no event loop yet that could be told."""

    async def first() -> None:
        async with Live(tmp_path, settle_s=1e6) as here:
            await here.send(b"CANCELLED AT noon\n")
        here.store.engine.dispose()

    async def second() -> None:
        here = Live(tmp_path, settle_s=0.0)
        here.store.write(lambda connection: connection.exec_driver_sql("delete from jobs"))
        here.events.start()
        assert await asyncio.to_thread(here.jobs.recover) == 1
        attempt = here.jobs.live("job", None)
        assert attempt is not None
        await here.until(lambda: attempt.read_bytes and attempt.scanner and not attempt.turn.working)
        await here.until(lambda: here.jobs._untold)
        here.journal.start()
        here.jobs.start()
        await here.until(lambda: attempt.end is not None)
        assert attempt.end is not None
        assert attempt.end.by == "scheduler"
        await here.jobs.fresh("job")
        await here.until(lambda: here.journal.segments <= 1)
        await here.__aexit__()

    asyncio.run(first())
    asyncio.run(second())


# --- learning


class Learner:
    """Takes what it is given, and asks for one thing at each final report."""

    learns = True

    def __init__(self) -> None:
        self.fed: list[tuple[str, bytes]] = []
        self.looked = 0

    def feed(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        self.fed += [(job, scan.text) for scan in scans if scan.kept]

    def tasks_of(self, flush: Flush, rules: Sequence[Rule]) -> tuple[Wanted, ...]:
        assert "boom" in {rule.id for rule in rules}
        assert flush.judged is not None
        return (Wanted("watch", {"well": True}),) if flush.judged.final else ()

    def look(self) -> None:
        self.looked += 1


@live()
async def test_who_learns_gets_the_kept_lines_and_its_tasks_are_stored(here: Live, hands: Hands) -> None:
    learner = here.jobs.learning = Learner()
    await here.send(b"hello there\nRuntimeError: boom\n")
    await here.jobs.fresh("job", report=True)
    assert learner.looked == 0
    await here.ingest.finish("job", None, End("exit", 7.0, 1))
    await here.jobs.fresh("job", report=True)
    assert b"".join(text for _, text in learner.fed) == b"hello there\nRuntimeError: boom\n"
    assert learner.looked == 1
    rows: Any = await here.store.aread(lambda connection: connection.exec_driver_sql("select kind from tasks").all())
    assert [tuple(row) for row in rows] == [("watch",)]


@live()
async def test_a_journal_that_cannot_forget_holds_up_no_job(here: Live, hands: Hands) -> None:
    """Its disk may be away for a moment. The same job goes on."""

    def fail(*_: Any) -> None:
        raise OSError("no locks available")

    with pytest.MonkeyPatch.context() as away:
        away.setattr(here.jobs.journal, "stored", fail)
        await here.send(b"the first line\n")
        await here.jobs.fresh("job")
        assert await here.lines() == ["the first line"]
    await here.send(b"the second line\n")
    await here.jobs.fresh("job")
    assert await here.lines() == ["the first line", "the second line"]


@live()
async def test_whoever_closes_jobs_again_waits_for_the_same(here: Live, hands: Hands) -> None:
    await here.send(b"a line\n")
    first = asyncio.create_task(here.jobs.close())
    await asyncio.sleep(0)
    first.cancel()  # who closed them first may not wait
    await here.jobs.close()
    assert await here.lines() == ["a line"]
    assert not here.jobs._flusher._thread.is_alive()


@pytest.mark.slow
@live()
async def test_who_stops_stores_what_was_read_and_diagnoses_nothing_again(here: Live, hands: Hands) -> None:
    """A stop takes as long as storing does, however many jobs there are that failed."""
    jobs = [f"job{number}" for number in range(40)]
    for job in jobs:
        await here.send(b"RuntimeError: boom\n", job=job)
    await asyncio.gather(*(here.jobs.fresh(job, report=True) for job in jobs))

    def made() -> float:
        return float(sum(one.value for one in here.telemetry.reports.collect()[0].samples if one.name.endswith("_total")))

    before = made()
    assert before >= 40
    for job in jobs:
        await here.send(b"a line that no rule knows\n", job=job)
    await here.jobs.close()
    assert made() == before
    for job in jobs:
        assert await here.lines(job) == ["RuntimeError: boom", "a line that no rule knows"]
