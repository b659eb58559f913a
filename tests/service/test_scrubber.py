"""What lies on disk is read again while the service runs; and what can be read of a damaged database is saved."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, func, insert, select

from diagnose.errors import DiagnoseError
from service.app import create_app
from service.backup import salvage
from service.runtime import Service
from service.scrubber import Scrubber
from service.settings import Settings
from service.store import Store
from service.store import tables as t
from service.store.attempts import open_attempt
from tests.service.store.test_lease import serve
from tests.support.live import Live, store_in

LINE = b"the quartermaster counted %d boxes\n"


def running(folder: Path, check: Callable[[Live, Scrubber], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with Live(folder, flush_s=3600.0, fold_after=0) as live:
            await check(live, Scrubber(live.journal, live.store, live.telemetry))

    asyncio.run(run())


def damaged(live: Live) -> float:
    return float(live.telemetry.damaged_bytes._value.get())


def test_a_bit_that_flips_while_the_service_runs_is_found_and_nothing_is_lost(tmp_path: Path) -> None:
    async def check(live: Live, scrubber: Scrubber) -> None:
        for number in range(5):
            await live.send(LINE % number)
        await scrubber.journal()
        assert (live.journal.damaged, damaged(live)) == (0, 0)
        (path,) = (tmp_path / "journal").glob("*.journal")
        whole = path.read_bytes()
        at = whole.index(b"counted 2")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([whole[at] ^ 1]))
        await live.send(LINE % 5)
        await scrubber.journal()
        await scrubber.journal()
        assert (live.journal.damaged, damaged(live)) == (1, len(LINE % 2))
        await live.jobs.fresh("job")
        assert await live.lines() == [(LINE % number).decode().strip() for number in range(6)]

    async def again(live: Live, scrubber: Scrubber) -> None:
        assert [path.suffix for path in (tmp_path / "journal").glob("0*")] == [".damaged"]
        assert (live.jobs.lost_bytes, len(await live.lines())) == (0, 6)

    running(tmp_path, check)
    running(tmp_path, again)


def spoilt(folder: Path) -> int:
    """A database with many lines, of which some pages are damaged; and how many lines there were."""
    store = store_in(folder)

    def fill(connection: Connection) -> None:
        for name in ("one", "two"):
            opened = open_attempt(connection, name, None, {}, 1.0)
            rows = [
                {"attempt_id": opened.attempt_id, "ord": n, "source": 0, "line": n, "text": f"{name} {n} " * 9, "cut": 0}
                for n in range(2000)
            ]  # fmt: skip
            connection.execute(insert(t.kept_lines), rows)

    store.write(fill)
    store.close()
    path = folder / "diagnose.db"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    pages = bytearray(path.read_bytes())
    at = pages.index(b"one 1000 ") // 4096 * 4096
    pages[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(pages)
    return 4000


@pytest.mark.slow
def test_a_damaged_database_is_told_and_what_can_be_read_of_it_is_saved(tmp_path: Path) -> None:
    lines = spoilt(tmp_path)
    store = Store.in_folder(tmp_path)
    scrubber = Scrubber(None, store, None)  # type: ignore[arg-type]
    asyncio.run(scrubber.database())
    assert "the database is damaged" in str(scrubber.problem)
    store.close()

    lost = salvage(Settings(data=tmp_path))
    assert set(lost) == {"kept_lines"}
    assert (tmp_path / "diagnose.db.damaged").exists()
    store = Store.in_folder(tmp_path)
    left = store.read(lambda connection: connection.execute(select(func.count()).select_from(t.kept_lines)).scalar_one())
    jobs = store.read(lambda connection: connection.execute(select(t.jobs.c.name)).scalars().all())
    assert (sorted(jobs), lines - 100 < left < lines) == (["one", "two"], True)
    again = Scrubber(None, store, None)  # type: ignore[arg-type]
    asyncio.run(again.database())
    assert again.problem is None
    store.close()
    assert salvage(Settings(data=tmp_path)) == {}


def test_what_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="no database here"):
        salvage(Settings(data=tmp_path))
    (tmp_path / "diagnose.db").write_bytes(b"\xff" * 8192)
    with pytest.raises(DiagnoseError, match="nothing can be read"):
        salvage(Settings(data=tmp_path))
    assert (tmp_path / "diagnose.db").read_bytes() == b"\xff" * 8192
    assert not (tmp_path / "diagnose.db.new").exists()
    with pytest.raises(DiagnoseError, match="only a SQLite"):
        salvage(Settings(data=tmp_path, database="postgresql://u@h/d"))


def test_who_meets_a_damaged_page_is_answered_503_and_the_service_is_not_ready(tmp_path: Path) -> None:
    spoilt(tmp_path)

    async def run() -> None:
        service = Service(Settings(data=tmp_path))
        try:
            transport = httpx.ASGITransport(create_app(service))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await service.tokens.refresh()
                answer = await client.get("/v1/jobs/one/lines", params={"limit": 1000, "after": 900})
                assert (answer.status_code, answer.json()["what"]) == (503, "the database is damaged")
                ready = (await client.get("/readyz")).json()
                assert (ready["ready"], ready["database"]) == (False, False)
                assert "diagnose restore --salvage" in ready["problems"][0]
        finally:
            service.journal.close()
            service.store.close()

    asyncio.run(run())


@pytest.mark.server
@pytest.mark.parametrize("page", ["the schema", "lease", "attempts"])
def test_a_service_that_cannot_begin_for_damage_says_so_in_a_sentence(tmp_path: Path, page: str) -> None:
    """It was a traceback, or "could not start"."""
    spoilt(tmp_path)
    path = tmp_path / "diagnose.db"
    with sqlite3.connect(path) as connection:
        root = connection.execute("select rootpage from sqlite_master where name = ?", [page]).fetchone() or (1,)
    connection.close()
    pages = bytearray(path.read_bytes())
    at = (root[0] - 1) * 4096
    pages[at + (100 if at == 0 else 0) : at + 4096] = b"\xff" * (3996 if at == 0 else 4096)
    path.write_bytes(pages)
    done = serve(tmp_path, "--database", f"sqlite:///{path}")
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 2
    assert "the database is damaged" in line
    assert "diagnose restore --salvage" in line
