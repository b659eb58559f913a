"""A disk that damages the journal: it costs the record that is hit, and everybody is told."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.errors import OffsetGap
from service.live.stream import End
from service.store import reading
from tests.support.live import Live

SEEDS = int(os.environ.get("DIAGNOSE_SEEDS", "6"))


def after_a_crash(folder: Path, spoil: Callable[[Path], None], check: Callable[[Live], Any], pieces: int = 30) -> None:
    """Three jobs are accepted and nothing is stored; their journal is damaged, then another life of the service reads it."""

    async def accept() -> None:
        async with Live(folder / "before", flush_s=3000.0) as live:
            for number in range(pieces):
                for job in ("a", "b", "c"):
                    data = f"RuntimeError: boom {job} {number:04d}\n".encode()
                    await live.send(data, job=job, offset=number * len(data))
            shutil.copytree(folder / "before" / "journal", folder / "after" / "journal")

    async def recover() -> None:
        async with Live(folder / "after") as live:
            await check(live)

    asyncio.run(accept())
    (segment,) = (folder / "after" / "journal").glob("*.journal")
    spoil(segment)
    asyncio.run(recover())


def of(job: str, missing: int | None = None, pieces: int = 30) -> list[str]:
    return [f"RuntimeError: boom {job} {number:04d}" for number in range(pieces) if number != missing]


def spoiling(words: bytes) -> Callable[[Path], None]:
    def spoil(segment: Path) -> None:
        data = bytearray(segment.read_bytes())
        data[data.index(words)] ^= 16
        segment.write_bytes(data)

    return spoil


async def sources(live: Live, job: str) -> list[dict[str, Any]]:
    await live.jobs.fresh(job, 1, report=True)
    found = await live.store.aread(lambda connection: reading.attempt_id(connection, job, None))
    assert found is not None
    return await live.store.aread(lambda connection: reading.sources(connection, found))


async def report(live: Live, job: str) -> Any:
    await live.jobs.fresh(job, 1, report=True)
    found = await live.store.aread(lambda connection: reading.attempt_id(connection, job, None))
    assert found is not None
    stored = await live.store.aread(lambda connection: reading.report(connection, found))
    assert stored is not None
    return stored["report"]


def test_a_flipped_bit_costs_one_record_and_its_report_says_which_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(live: Live) -> None:
        size = len(b"RuntimeError: boom b 0011\n")
        gap = [11 * size, 12 * size]
        told = await report(live, "b")
        assert await live.lines("b") == of("b", 11)
        assert told["problems"][0]["source"] == "s"
        assert f"{gap[0]:,} to {gap[1]:,}" in told["problems"][0]["what"]
        assert any("bytes of the log are missing" in sentence for sentence in told["diagnosis"]["doubt"])
        assert [list(one) for one in (await sources(live, "b"))[0]["missing"]] == [gap]
        for job in ("a", "c"):
            assert (await report(live, job))["problems"] == []
            assert await live.lines(job) == of(job)
        assert live.jobs.lost_bytes == size
        assert b"diagnose_lost_bytes_total 26.0" in live.telemetry.text()
        # The sender goes on where it was, and is not refused.
        await live.send(b"RuntimeError: boom b last\n", job="b", offset=30 * size)
        await sources(live, "b")
        assert (await live.lines("b"))[-1] == "RuntimeError: boom b last"

    after_a_crash(tmp_path, spoiling(b"boom b 0011"), check)
    assert [record.levelname for record in caplog.records if "are lost" in record.message] == ["ERROR"]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.slow
def test_any_bit_costs_one_record_at_most(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def spoil(segment: Path) -> None:
        data = bytearray(segment.read_bytes())
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        segment.write_bytes(data)

    async def check(live: Live) -> None:
        missing = []
        for job in ("a", "b", "c"):
            gaps = (await sources(live, job))[0]["missing"]
            lines = await live.lines(job)
            size = len(lines[0]) + 1
            hit = gaps[0][0] // size if gaps else None
            assert lines == of(job, hit)
            assert all(end - begin == size for begin, end in gaps)
            missing += gaps
        assert len(missing) <= 1
        assert live.jobs.lost_bytes == sum(end - begin for begin, end in missing)

    after_a_crash(tmp_path, spoil, check)


def test_what_comes_behind_a_gap_does_not_go_on_the_line_before_it(tmp_path: Path) -> None:
    """Half a line and half of another are no line: a node could be named that nobody wrote."""

    async def accept() -> None:
        async with Live(tmp_path / "before", flush_s=3000.0) as live:
            for data in (b"RuntimeError: boom one ", b"two\nRuntimeError: boom two ", b"three\nRuntimeError: boom end\n"):
                await live.send(data, key=data.decode())
            shutil.copytree(tmp_path / "before" / "journal", tmp_path / "after" / "journal")

    async def recover() -> None:
        async with Live(tmp_path / "after") as live:
            await live.jobs.fresh("job", 1, report=True)
            lines = await live.lines()
            assert lines == ["RuntimeError: boom one ", "three", "RuntimeError: boom end"]

    asyncio.run(accept())
    (segment,) = (tmp_path / "after" / "journal").glob("*.journal")
    spoiling(b"boom two")(segment)
    asyncio.run(recover())


def test_where_nobody_knows_whose_bytes_are_lost_a_sender_may_go_on_behind_them(tmp_path: Path) -> None:
    """The last records of all sources are gone, with their heads: their senders have been told that they are stored."""
    size = len(b"RuntimeError: boom b 0011\n")

    def spoil(segment: Path) -> None:
        data = bytearray(segment.read_bytes())
        at = data.index(b"boom a 0029") - 90
        data[at:] = bytes(0xAA for _ in data[at:])
        segment.write_bytes(data)

    async def check(live: Live) -> None:
        assert live.jobs.lost_bytes >= 3 * size
        assert (await sources(live, "b"))[0]["missing"] == []
        await live.send(b"RuntimeError: boom b last\n", job="b", offset=30 * size)
        assert [list(one) for one in (await sources(live, "b"))[0]["missing"]] == [[29 * size, 30 * size]]
        assert await live.lines("b") == [*of("b", 29), "RuntimeError: boom b last"]
        with pytest.raises(OffsetGap):  # more than was lost
            await live.send(b"x", job="b", offset=1 << 30)
        await live.send(b"x\n", job="new", offset=0)
        with pytest.raises(OffsetGap):  # none of its bytes can be among them
            await live.send(b"x\n", job="new", offset=10)

    after_a_crash(tmp_path, spoil, check)


def test_a_lost_end_is_no_end(tmp_path: Path) -> None:
    async def accept() -> None:
        async with Live(tmp_path / "before", flush_s=3000.0) as live:
            await live.send(b"RuntimeError: boom\n")
            await live.ingest.finish("job", 1, End("exit", 5.0, 3))
            shutil.copytree(tmp_path / "before" / "journal", tmp_path / "after" / "journal")

    async def recover() -> None:
        async with Live(tmp_path / "after") as live:
            await live.jobs.fresh("job", 1, report=True)
            (row,) = await live.attempts()
            assert (row.state, row.exit_code) == ("running", None)
            assert live.jobs.lost_bytes > 0

    asyncio.run(accept())
    (segment,) = (tmp_path / "after" / "journal").glob("*.journal")
    spoiling(b'"exit"')(segment)
    asyncio.run(recover())
