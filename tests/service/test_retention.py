"""What is deleted, what never is, and that nothing of it comes back; on SQLite and on PostgreSQL, over HTTP."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from diagnose.backoff import Backoff
from diagnose.knowledge.rules import Rule, RuleSet
from service.errors import Conflict, Unavailable
from service.intake.batch import Batch
from service.live.stream import End
from service.raw import parts
from service.runtime import Service
from service.settings import Settings
from service.store import Store, deletions
from service.store import tables as t
from service.store.attempts import find_attempt, open_attempt, taking_in
from tests.service.store.test_store import flush
from tests.support.live import store_in
from tests.support.servers import Server

FAILED = b"step 1\nRuntimeError: CUDA error: an illegal memory access was encountered\nstep 2\n"
SOON = str(1.0 / 86_400)


@pytest.fixture(params=["sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Server]:
    """A server with raw logs that sweeps often."""
    words = ["--raw-logs", str(tmp_path / "raw")]
    if request.param == "postgresql":
        words += ["--database", request.getfixturevalue("postgres").database(f"r{time.time_ns()}")]

    def made(**settings: str) -> Server:
        named = {f"DIAGNOSE_SERVE_{name.upper()}": value for name, value in {"sweep_s": "0.2", **settings}.items()}
        return Server(tmp_path / "data", *words, **named)

    return made


def fill(server: Server, job: str, *, ended: bool = True, label: bool = False) -> None:
    """What is to be seen of it is seen before it ends: from then on its time runs."""
    server.push(job, FAILED, source="s", offset=0, node="gpu-1")
    server.get(f"/v1/jobs/{job}/report")
    assert server.client.get(f"/v1/jobs/{job}/raw/download").content == FAILED
    if label:
        word = {"category": "infrastructure", "reason": "cuda_error", "source": "s", "line": 2}
        assert server.client.post(f"/v1/jobs/{job}/corrections", json=word).status_code == 201
    if ended:
        server.end(job, 1)


def until(true: Callable[[], Any], within_s: float = 20.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def trail(server: Server, what: str) -> list[Any]:
    """(who, about what, detail) of the audit trail's entries."""
    words = server._words
    store = Store(words[words.index("--database") + 1]) if "--database" in words else Store.in_folder(server.data)
    a = t.audit.c
    query = select(a.who, a.subject, a.detail).where(a.what == what).order_by(a.id)
    try:
        return [tuple(row) for row in store.read(lambda connection: connection.execute(query).all())]
    finally:
        store.close()


def attempt(server: Server, job: str) -> Any:
    return server.get(f"/v1/jobs/{job}")["attempts"][0]


@pytest.mark.server
def test_logs_go_by_age_and_what_was_found_out_stays(make: Callable[..., Server]) -> None:
    with make(keep_raw_days=SOON, keep_lines_days=SOON) as server:
        for job in ("old", "label"):
            fill(server, job, label=job == "label")
        fill(server, "runs", ended=False)
        until(lambda: attempt(server, "old")["lines_deleted"] and attempt(server, "old")["raw_deleted"])
        until(lambda: attempt(server, "label")["raw_deleted"])
        assert server.lines("old") == []
        assert server.get("/v1/jobs/old/raw")["lines"] == []
        assert server.get("/v1/jobs/old/report")["diagnosis"]["reason"] == "cuda_error"
        assert (attempt(server, "old")["lines_kept"], attempt(server, "old")["lines_in"]) == (3, 3)
        (group,) = server.get("/v1/failures")["failures"]
        assert group["count"] == 2
        assert "The kept lines were deleted" in server.client.get("/ui/jobs/old/log").text
        # A label keeps its kept lines, and what runs keeps all.
        assert len(server.lines("label")) == 3
        assert attempt(server, "label")["lines_deleted"] is None
        assert len(server.lines("runs")) == 3
        assert server.client.get("/v1/jobs/runs/raw/download").content == FAILED
        # What ended is not gone on with; another attempt is.
        late = server.client.post("/v1/jobs/old/logs", params={"source": "s", "offset": str(len(FAILED))}, content=b"late\n")
        assert (late.status_code, late.json()["error"]) == (409, "conflict")
        server.push("old", b"ValueError: again\n", source="s", offset=0, attempt=2)
        assert len(server.lines("old")) == 1
        entries = trail(server, "lines.deleted")
        assert [(who, subject, detail["first"]) for who, subject, detail in entries] == [
            ("retention", "retention", [{"job": "old", "attempt": 1}])
        ]
        assert sum(detail["attempts"] for _, _, detail in trail(server, "raw.deleted")) == 2
        metrics = server.client.get("/metrics").text
        assert 'diagnose_deleted_total{what="lines"} 1.0' in metrics
        assert 'diagnose_deleted_total{what="raw"} 2.0' in metrics


@pytest.mark.server
def test_jobs_go_by_age_and_do_not_come_back(make: Callable[..., Server]) -> None:
    with make(keep_jobs_days=SOON) as server:
        for job in ("old", "label"):
            fill(server, job, label=job == "label")
        fill(server, "runs", ended=False)
        until(lambda: server.client.get("/v1/jobs/old").status_code == 404)
        (group,) = server.get("/v1/failures")["failures"]
        assert group["count"] == 2
        assert [(who, subject) for who, subject, _ in trail(server, "job.deleted")] == [("retention", "job/old")]
        server.kill()  # the journal has its bytes still
        server.start()
        assert {job["name"] for job in server.get("/v1/jobs")["jobs"]} == {"label", "runs"}
        assert server.client.get("/v1/jobs/runs/raw/download").content == FAILED
        names = {path.parents[2].name for path in (server.data.parent / "raw").rglob("*.zst")}
        assert len(names) == 2, "the raw log of the deleted job is back"


@pytest.mark.server
def test_an_administrator_deletes_a_job(make: Callable[..., Server]) -> None:
    with make() as server:
        for job in ("one", "label", "other"):
            fill(server, job, label=job == "label")
            server.get(f"/v1/jobs/{job}/report")
        fill(server, "runs", ended=False)

        def delete(job: str, **params: str) -> Any:
            return server.client.delete(f"/v1/jobs/{job}", params=params)

        assert delete("nobody").status_code == 404
        assert "POST /v1/jobs/runs/end" in delete("runs").json()["remedy"]
        assert "labels=delete" in delete("label").json()["remedy"]
        answer = delete("one")
        assert answer.status_code == 200, answer.text
        assert {**answer.json(), "raw_bytes": answer.json()["raw_bytes"] > 0} == {
            "job": "one", "attempts": 1, "lines": 3, "raw_bytes": True,
        }  # fmt: skip
        assert server.client.get("/v1/jobs/one").status_code == 404
        assert delete("label", labels="delete").status_code == 200
        assert server.get("/v1/corrections")["corrections"] == []
        said = [(who, subject, detail["why"], detail["corrections"]) for who, subject, detail in trail(server, "job.deleted")]
        assert said == [("local", "job/one", "asked", 0), ("local", "job/label", "asked", 1)]
        # The name is free again, and the new job's bytes are not mistaken for the old one's.
        server.push("one", b"KeyError: 'new'\n", source="s", offset=0)
        server.kill()
        server.start()
        assert [line["text"] for line in server.lines("one")] == ["KeyError: 'new'"]
        assert server.client.get("/v1/jobs/one/raw/download").content == b"KeyError: 'new'\n"
        assert {job["name"] for job in server.get("/v1/jobs")["jobs"]} == {"one", "other", "runs"}


@pytest.mark.server
def test_a_deletion_that_was_cut_off_is_finished_at_the_start(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--raw-logs", str(tmp_path / "raw")) as server:
        for job in ("one", "other"):
            fill(server, job)
        server.kill()
        store = Store.in_folder(server.data)
        lsn = store.read(
            lambda connection: connection.execute(select(t.attempts.c.lsn).order_by(t.attempts.c.lsn)).scalars().all()
        )
        store.write(lambda connection: deletions.begin(connection, "one", lsn[-1], 1.0))
        store.close()
        server.start()
        until(lambda: {job["name"] for job in server.get("/v1/jobs")["jobs"]} == {"other"})
        assert server.client.get("/v1/jobs/other/raw/download").content == FAILED
        assert [subject for _, subject, _ in trail(server, "job.deleted")] == ["job/one"]


@pytest.mark.server
def test_raw_logs_keep_within_a_size_and_the_oldest_go_first(make: Callable[..., Server]) -> None:
    with make(raw_limit="250", sweep_s="0.5") as server:
        fill(server, "runs", ended=False)
        for job in ("a", "b", "c", "d"):
            fill(server, job)
            time.sleep(0.05)
        raw = server.data.parent / "raw"
        until(lambda: sum(path.stat().st_size for path in raw.rglob("*.zst")) <= 250)
        gone = [attempt(server, job)["raw_deleted"] is not None for job in ("runs", "a", "b", "c", "d")]
        assert gone[0] is False
        assert gone[1:] == sorted(gone[1:], reverse=True)
        assert gone[1]
        assert server.client.get("/v1/jobs/runs/raw/download").content == FAILED
        assert all(detail["why"] == "size" for _, _, detail in trail(server, "raw.deleted"))


def test_it_is_deleted_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "A_PART", 10)
    store = store_in(tmp_path)
    opened = store.write(lambda connection: open_attempt(connection, "j", None, {}, 1.0))
    store.write(taking_in([flush(opened, 1, rows=25)]))
    parts = []
    while some := store.write(lambda connection: deletions.delete_lines(connection, opened.attempt_id, 7.0)):
        parts.append(some)
        # Cut off here, it is found again.
        store.write(lambda connection: connection.execute(update(t.attempts).values(state="ended", ended_at=1.0)))
        assert store.read(lambda connection: len(deletions.old_lines(connection, 2.0, 9))) == 1
    assert parts == [10, 10, 5]
    assert store.read(lambda connection: deletions.old_lines(connection, 2.0, 9)) == []
    store.close()


def test_raw_logs_of_late_lines_are_found_again(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    opened = store.write(lambda connection: open_attempt(connection, "j", None, {}, 1.0))
    ended = update(t.attempts).values(state="ended", ended_at=1.0)
    for last_seen, expected in ((1.0, []), (6.0, [(opened.attempt_id, "j", 1)])):
        store.write(lambda connection, at=last_seen: connection.execute(ended.values(last_seen=at)))
        store.write(lambda connection: deletions.raw_is_deleted(connection, [opened.attempt_id], 5.0))
        assert store.read(lambda connection: deletions.old_raw(connection, 2.0, 9)) == expected
    store.close()


def holds(attempt_id: int) -> dict[str, Any]:
    """What a person, the policy or the agent may do about an attempt."""
    mine = {"attempt_id": attempt_id}
    times = {"created": 1.0, "changed": 1.0}
    told = {"at": 1.0, "who": "kim", "category": "script", "reason": "key_error", "was": {}}
    return {
        "correction": t.corrections.insert().values(**mine, **told),
        "action": t.actions.insert().values(key="k", kind="restart", nodes=[], why="", state="approved", **mine, **times),
        "task": t.tasks.insert().values(kind="ask", ref="", detail={}, state="waiting", **mine, **times),
    }


@pytest.mark.parametrize("held", ["running attempt", "correction", "action", "task"])
def test_what_holds_a_job(tmp_path: Path, held: str) -> None:
    store = store_in(tmp_path)
    opened = store.write(lambda connection: open_attempt(connection, "j", None, {}, 1.0))

    holding = {"running attempt": update(t.attempts).values(state="running"), **holds(opened.attempt_id)}

    def work(connection: Any) -> None:
        connection.execute(update(t.attempts).values(state="ended", ended_at=1.0))
        connection.execute(update(t.jobs).values(state="ended"))
        connection.execute(holding[held])

    store.write(work)
    assert store.read(lambda connection: deletions.old_jobs(connection, 2.0, 9)) == []
    table = {"correction": t.corrections, "action": t.actions, "task": t.tasks}.get(held)
    released = table.delete() if table is not None else update(t.attempts).values(state="ended")
    store.write(lambda connection: connection.execute(released))
    assert store.read(lambda connection: deletions.old_jobs(connection, 2.0, 9)) == ["j"]
    store.close()


class InProcess:
    """A service without its HTTP face, so that what deletes can be held up where it would be unlucky."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        rules = RuleSet((Rule("e", "failures", "RuntimeError", reason="runtime_error", title="an error"),))
        settings = {"raw_logs": folder / "raw", "sweep_s": 86_400, **settings}
        self.service = Service(Settings(data=folder / "data", scanners=1, **settings), rules)
        assert self.service.archive is not None
        self.archive = self.service.archive
        self.reached, self.go_on = threading.Event(), threading.Event()

    async def __aenter__(self) -> InProcess:
        await self.service.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go_on.set()
        await self.service.stop()

    async def send(
        self, job: str, data: bytes = FAILED, attempt: int | None = None, *, offset: int = 0, ended: bool = True
    ) -> None:
        await self.service.ingest.accept(Batch(job=job, attempt=attempt, source="s", offset=offset, data=data))
        if ended:
            await self.service.ingest.finish(job, attempt, End("exit", time.time(), 1))
        await self.service.jobs.fresh(job, attempt, report=True)
        await self.archive.fresh(job, attempt or 1)

    def hold_up(self, held: str) -> None:
        """From here on raw logs of this job are deleted when ``go_on`` says so."""
        delete = self.archive.delete

        def slow(job: str, attempt: int | None = None) -> int:
            if job == held:
                self.reached.set()
                self.go_on.wait(20)
            return delete(job, attempt)

        self.archive.delete = slow  # type: ignore[method-assign]

    def raw(self, job: str) -> bytes:
        return b"".join(one[1] for one in parts.raw(self.archive.source(job, 1, "s")) if not isinstance(one, parts.Gap))

    async def write(self, *statements: Any) -> None:
        await self.service.store.awrite(lambda connection: [connection.execute(one) for one in statements])

    def attempt(self, job: str) -> int:
        """The key of its first."""
        found = self.service.store.read(lambda connection: find_attempt(connection, job, 1))
        assert found is not None
        return found.attempt_id

    async def lines(self, job: str) -> list[str]:
        await self.service.jobs.fresh(job)
        k, j = t.kept_lines.c, t.jobs.c
        query = select(k.text).join(t.attempts, t.attempts.c.id == k.attempt_id).join(t.jobs, j.id == t.attempts.c.job_id)
        return await self.service.store.aread(lambda connection: [*connection.execute(query.where(j.name == job)).scalars()])


def test_two_who_delete_one_job_at_once_take_nothing_of_the_next_of_its_name(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcess(tmp_path) as here:
            await here.send("j")
            here.hold_up("j")
            first = asyncio.create_task(here.service.retention.delete("j", "ann"))
            await asyncio.to_thread(here.reached.wait, 20)
            second = asyncio.create_task(here.service.retention.delete("j", "bob"))
            await asyncio.wait({second}, timeout=0.5)
            here.go_on.set()
            assert (await first)["lines"] == 3
            await here.send("j", b"of the next\n", ended=False)
            with pytest.raises(Conflict, match="deleted"):
                await second
            assert await here.lines("j") == ["of the next"]
            assert here.archive.source("j", 1, "s").is_dir()

    asyncio.run(run())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Says whether the disk lets go of files."""
    unlink = os.unlink
    good = True

    def fickle(path: Any, **words: Any) -> None:
        if not good and str(path).endswith(".zst"):
            raise OSError(errno.EIO, "Input/output error", path)
        unlink(path, **words)

    def turn(to: bool) -> None:
        nonlocal good
        good = to

    monkeypatch.setattr(os, "unlink", fickle)
    monkeypatch.setattr("service.retention._BACKOFF", Backoff(0.05, 60.0))
    yield turn
    turn(True)


def test_a_job_whose_raw_logs_cannot_be_deleted_holds_its_name_until_they_are(
    tmp_path: Path, disk: Callable[[bool], None]
) -> None:
    async def refused(here: InProcess) -> None:
        with pytest.raises(Unavailable, match="is being deleted"):
            await here.send("j", b"new\n")

    async def run() -> None:
        async with InProcess(tmp_path) as here:
            await here.send("j")
            disk(False)
            with pytest.raises(Unavailable, match="Input/output error"):
                await here.service.retention.delete("j", "ann")
            await refused(here)
        async with InProcess(tmp_path) as here:  # the disk is no better after a restart
            await asyncio.sleep(0.1)
            await refused(here)
            disk(True)
            while "j" in here.service.store.read(deletions.begun):
                await asyncio.sleep(0.05)
            await here.send("j", b"new\n")
            assert await here.lines("j") == ["new"]
            assert here.raw("j") == b"new\n"

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("why", ["age", "size"])
def test_raw_logs_that_cannot_be_deleted_are_tried_again_by_the_next_sweep(
    tmp_path: Path, disk: Callable[[bool], None], why: str
) -> None:
    async def run() -> None:
        settings = {"keep_raw_days": 1.0} if why == "age" else {"raw_limit": 0}
        async with InProcess(tmp_path, **settings) as here:
            await here.send("j")
            later = time.time() + 2 * 86_400
            disk(False)
            await here.service.retention.sweep(later)
            assert here.raw("j") == FAILED
            assert (
                here.service.store.read(lambda connection: connection.execute(select(t.attempts.c.raw_deleted)).scalar())
                is None
            )
            disk(True)
            await here.service.retention.sweep(later)
            assert here.raw("j") == b""
            assert here.service.store.read(lambda connection: connection.execute(select(t.attempts.c.raw_deleted)).scalar())

    asyncio.run(asyncio.wait_for(run(), 60))


LONG_AGO = time.time() - 3 * 86_400


@pytest.mark.parametrize("held", ["correction", "action", "task", "another attempt"])
def test_what_holds_a_job_since_the_sweep_found_it_holds_it(tmp_path: Path, held: str) -> None:
    async def run() -> None:
        async with InProcess(tmp_path, keep_jobs_days=1.0) as here:
            for job in ("a", "b"):
                await here.send(job)
            old = {"last_seen": LONG_AGO}
            await here.write(update(t.jobs).values(old), update(t.jobs).where(t.jobs.c.name == "a").values(last_seen=1.0))
            here.hold_up("a")
            sweep = asyncio.create_task(here.service.retention.sweep(time.time()))
            await asyncio.to_thread(here.reached.wait, 20)
            if held == "another attempt":
                await here.send("b", b"of the other attempt\n", attempt=2)
            else:
                await here.write(holds(here.attempt("b"))[held])
            here.go_on.set()
            await sweep
            assert await here.lines("a") == []
            assert len(await here.lines("b")) == 3 + (held == "another attempt")

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(("held", "what"), [("correction", "makes it a label"), ("action", "under way")])
def test_what_holds_a_job_since_somebody_asked_holds_it(tmp_path: Path, held: str, what: str) -> None:
    async def run() -> None:
        async with InProcess(tmp_path) as here:
            await here.send("j")
            jobs = here.service.jobs
            lock = jobs._opening["j"] = asyncio.Lock()
            async with lock:  # somebody is about to open it
                deletion = asyncio.create_task(here.service.retention.delete("j", "ann"))
                while ("j", None) not in jobs._leaving:
                    await asyncio.sleep(0.01)
                await here.write(holds(here.attempt("j"))[held])
            with pytest.raises(Conflict, match=what):
                await deletion
            assert len(await here.lines("j")) == 3
            assert here.raw("j") == FAILED

    asyncio.run(asyncio.wait_for(run(), 60))


def test_lines_that_became_a_label_since_the_sweep_found_them_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcess(tmp_path, keep_lines_days=1.0) as here:
            await here.send("j")
            await here.write(update(t.attempts).values(ended_at=LONG_AGO))
            jobs = here.service.jobs
            lock = jobs._opening["j"] = asyncio.Lock()
            async with lock:
                sweep = asyncio.create_task(here.service.retention.sweep(time.time()))
                while ("j", 1) not in jobs._leaving:
                    await asyncio.sleep(0.01)
                await here.write(holds(here.attempt("j"))["correction"])
            await sweep
            assert len(await here.lines("j")) == 3

    asyncio.run(asyncio.wait_for(run(), 60))


def test_raw_logs_of_a_job_that_took_an_old_name_since_the_sweep_found_it_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcess(tmp_path, keep_raw_days=1.0) as here:
            for job, ended_at in (("a", 1.0), ("b", LONG_AGO)):
                await here.send(job)
                await here.write(update(t.attempts).where(t.attempts.c.id == here.attempt(job)).values(ended_at=ended_at))
            here.hold_up("a")
            sweep = asyncio.create_task(here.service.retention.sweep(time.time()))
            await asyncio.to_thread(here.reached.wait, 20)
            await here.service.retention.delete("b", "ann")
            await here.send("b", b"new\n", ended=False)
            here.go_on.set()
            await sweep
            assert (here.raw("a"), here.raw("b")) == (b"", b"new\n")

    asyncio.run(asyncio.wait_for(run(), 60))


def test_raw_logs_that_were_deleted_are_not_read_from_the_journal_again(tmp_path: Path) -> None:
    """What came later is, also if it was not archived before the restart."""

    async def run() -> None:
        async with InProcess(tmp_path, keep_raw_days=1.0) as here:
            for job in ("j", "late"):
                await here.send(job)
            await here.write(update(t.attempts).values(ended_at=LONG_AGO))
            await here.service.retention.sweep(time.time())
            assert (here.raw("j"), here.raw("late")) == (b"", b"")
            await here.send("late", b"late\n", offset=len(FAILED))
            shutil.rmtree(here.archive.job("late"))
        async with InProcess(tmp_path) as here:
            await here.archive.fresh("late", 1)
            assert (here.raw("j"), here.raw("late")) == (b"", b"late\n")

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_attempt_whose_lines_were_deleted_takes_nothing_after_a_restart_either(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcess(tmp_path, keep_lines_days=1.0) as here:
            await here.send("j")
            await here.write(update(t.attempts).values(ended_at=LONG_AGO))
            await here.service.retention.sweep(time.time())
            assert await here.lines("j") == []
        async with InProcess(tmp_path) as here:
            with pytest.raises(Conflict, match="its log was deleted"):
                await here.send("j", b"late\n", offset=len(FAILED))

    asyncio.run(asyncio.wait_for(run(), 60))
