"""What ``/readyz`` and ``/metrics`` say is found out by doing it; and who pushes meanwhile is told to come back."""

from __future__ import annotations

import asyncio
import errno
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from diagnose import __version__
from service.errors import OffsetGap, Unavailable
from service.intake.batch import Batch
from service.probes import Probes
from tests.support.live import Hands, Live, until
from tests.support.servers import Server


def probing(folder: Path, check: Callable[[Live, Probes, Hands], Any]) -> None:
    async def run() -> None:
        hands = Hands()
        async with Live(folder, hands) as live:
            probes = Probes(live.journal.folder, live.store, live.jobs, live.telemetry, hands.clock)
            await check(live, probes, hands)

    asyncio.run(run())


def number(live: Live, name: str) -> float:
    lines = live.telemetry.text().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


@contextmanager
def full_disk(pid: int = 0, room: int = 0) -> Iterator[None]:
    """No file may grow beyond ``room``: the kernel refuses what is written, as where a disk is full."""
    import signal

    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_disk_that_cannot_be_written_is_found_and_told(tmp_path: Path) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        assert (await probes.found()).problems == []
        hands.passed += 2
        with full_disk():
            found = await probes.found()
        assert found.disk is not None
        assert str(live.journal.folder) in found.disk
        assert number(live, "diagnose_disk_up") == 0
        hands.passed += 2
        assert (await probes.found()).problems == []
        assert number(live, "diagnose_disk_up") == 1

    probing(tmp_path, check)


def test_a_disk_where_a_probe_has_room_and_a_push_has_none_is_told(tmp_path: Path) -> None:
    """The probe once found the room that it had taken itself: a full disk was ready where the database was elsewhere."""

    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        assert (await probes.found()).problems == []
        assert not (live.journal.folder / "probe").exists()
        hands.passed += 2
        with full_disk(room=1 << 20):
            found = await probes.found()
        assert found.disk is not None
        assert not (live.journal.folder / "probe").exists()
        hands.passed += 2
        assert (await probes.found()).disk is None

    probing(tmp_path, check)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_reserves_nothing_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """musl tells so; glibc writes to each block instead."""

    def cannot(*_: int) -> None:
        raise OSError(number, "no")

    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        monkeypatch.setattr("os.posix_fallocate", cannot)
        assert (await probes.found()).disk is None
        monkeypatch.setattr("service.probes._ROOM", 1 << 60)
        hands.passed += 2
        assert "No space left" in ((await probes.found()).disk or "")

    probing(tmp_path, check)


def test_a_disk_that_hangs_is_told_and_not_asked_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        go_on, asked = threading.Event(), []

        def hang(file: int) -> None:
            asked.append(file)
            go_on.wait(20)

        monkeypatch.setattr("service.probes._WAIT_S", 0.05)
        monkeypatch.setattr("os.fdatasync", hang)
        for _ in range(3):
            hands.passed += 2
            assert (await probes.found()).disk == "the disk of the journal does not answer"
        assert len(asked) == 1
        monkeypatch.undo()
        go_on.set()
        await asyncio.sleep(0.05)
        hands.passed += 2
        assert (await probes.found()).disk is None

    probing(tmp_path, check)


def test_a_database_that_can_be_read_and_not_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        def refuse() -> None:
            with live.store.engine.begin() as connection:
                connection.execute(text("pragma query_only = on"))
                try:
                    connection.execute(text("update jobs set state = 'x'"))
                finally:
                    connection.execute(text("pragma query_only = off"))

        monkeypatch.setattr(live.store, "beat", refuse)
        found = await probes.found()
        assert found.database is not None
        assert "the database cannot be written: " in found.database
        assert number(live, "diagnose_database_up") == 0

    probing(tmp_path, check)


def test_a_scanner_that_stands_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        go_on, stands = threading.Event(), threading.Event()

        def stand(*_: object, **__: object) -> bool:
            stands.set()
            go_on.wait(20)
            return False

        attempt = await live.jobs.open("job", 1)
        await live.until(lambda: not attempt.turn.working)
        monkeypatch.setattr(attempt, "work", stand)
        await live.send(b"RuntimeError: boom\n")
        await live.until(stands.is_set)
        hands.passed += 59
        assert (await probes.found()).scanners is None
        assert number(live, "diagnose_unread_age_seconds") == 59
        assert number(live, "diagnose_unstored_age_seconds") == 59
        hands.passed += 2
        assert "scanner 0 makes no progress" in str((await probes.found()).scanners)
        assert number(live, "diagnose_scanners_standing") == 1
        monkeypatch.undo()
        go_on.set()
        await live.until(lambda: live.jobs.standing(60) == [])
        await live.jobs.fresh("job", 1)
        await live.until(lambda: not attempt.received.unstored_since)
        hands.passed += 2
        assert (await probes.found()).problems == []
        assert number(live, "diagnose_unread_age_seconds") == number(live, "diagnose_unstored_age_seconds") == 0

    probing(tmp_path, check)


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_a_clock_that_was_set_is_told_for_an_hour(tmp_path: Path, by: float) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        assert (await probes.found()).clock is None
        hands.passed, hands.set_by = 10, by
        assert f"the clock was set by {by:+.1f} s" in str((await probes.found()).clock)
        assert number(live, "diagnose_clock_jumps_total") == 1
        hands.passed = 3000
        assert (await probes.found()).clock is not None
        hands.passed = 3700
        assert (await probes.found()).clock is None

    probing(tmp_path, check)


def test_many_who_ask_at_once_share_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        beats: list[int] = []
        monkeypatch.setattr(live.store, "beat", lambda: beats.append(1))
        await asyncio.gather(*(probes.found() for _ in range(50)))
        assert len(beats) == 1

    probing(tmp_path, check)


def test_the_version_is_among_the_numbers(tmp_path: Path) -> None:
    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        assert 'diagnose_build_info{python="3.11' in live.telemetry.text().decode()
        assert f'version="{__version__}"' in live.telemetry.text().decode()

    probing(tmp_path, check)


def test_who_follows_what_a_full_disk_refused_is_told_to_wait_and_not_that_it_erred(tmp_path: Path) -> None:
    """A shipper gives up at 409. Its batch has no place only because the one before it could not be written."""

    async def check(live: Live, probes: Probes, hands: Hands) -> None:
        await live.send(b"one\n", offset=0)
        with full_disk(), pytest.raises(Unavailable):
            await live.send(b"two\n", offset=4)
        for offset in (8, 12, 8):
            with pytest.raises(Unavailable) as refused:
                await live.ingest.begin(Batch(job="job", source="s", data=b"more", offset=offset))
            assert refused.value.retry_after_s
        with pytest.raises(OffsetGap):
            await live.send(b"far\n", offset=4000)
        hands.passed += 61
        with pytest.raises(OffsetGap):  # it seems that nobody sends it again
            await live.send(b"more", offset=8)
        await live.send(b"two\nthree\n", offset=4)
        await live.send(b"four\n", offset=14)

    probing(tmp_path, check)


@pytest.mark.server
def test_a_full_disk_shows_in_readyz_and_nobody_is_told_that_it_erred(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as running:
        running.push("job", b"line\n" * 10, source="s", offset=0)
        assert running.get("/readyz")["problems"] == []
        with full_disk(running.pid):
            for offset in (50, 100, 150):
                answer = running.client.post(
                    "/v1/jobs/job/logs", params={"source": "s", "offset": offset}, content=b"more\n" * 10
                )
                assert answer.status_code in (429, 503), answer.text
                assert int(answer.headers["Retry-After"]) >= 1
            new = running.client.post("/v1/jobs/new/logs", params={"source": "s", "offset": 0}, content=b"x\n")
            assert new.status_code in (429, 503)
            time.sleep(1.2)
            told = running.client.get("/readyz")
            assert told.status_code == 503
            assert told.headers["Retry-After"]
            assert any("cannot be written" in problem for problem in told.json()["problems"])
            assert running.client.get("/healthz").status_code == 200
        until(lambda: running.client.get("/readyz").status_code == 200)
        running.push("job", b"more\n" * 10, source="s", offset=50)
        assert "diagnose_disk_up 1.0" in running.client.get("/metrics").text
