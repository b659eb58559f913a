"""A backup of a service that goes on, and a service made from it: all that was acknowledged before it began is there."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from diagnose.errors import DiagnoseError
from service.backup import back_up, restore, unpack
from service.journal import Journal
from service.settings import Settings
from service.store import Store, lease
from service.store import tables as t
from service.store.lease import Claim
from tests.conftest import Run
from tests.support.live import store_in, until
from tests.support.servers import Server

SOURCES = [(f"job{number}", f"rank{rank}.log") for number in range(2) for rank in range(2)]


def told(number: int) -> bytes:
    return b"".join(b"the quartermaster of shard %d counted %d boxes\n" % (number, line) for line in range(40))


class Pushing:
    """Clients that go on sending, and remember what was acknowledged."""

    def __init__(self, server: Server) -> None:
        self._server, self._over = server, False
        self.acknowledged = dict.fromkeys(SOURCES, 0)
        self.sent = dict.fromkeys(SOURCES, b"")
        self._threads = [threading.Thread(target=self._push, args=(one,)) for one in SOURCES]
        for thread in self._threads:
            thread.start()

    def _push(self, one: tuple[str, str]) -> None:
        number = 0
        while not self._over:
            data = told(number)
            self.sent[one] += data
            job, source = one
            self._server.push(job, data, source=source, offset=self.acknowledged[one])
            self.acknowledged[one] += len(data)
            number += 1
            time.sleep(0.1)

    def end(self) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()


@pytest.mark.server
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_acknowledged_before_a_backup_is_in_it(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, diagnose: Run
) -> None:
    here, there = [], []
    if kind == "postgresql":
        postgres = request.getfixturevalue("postgres")
        here = ["--database", postgres.database(f"here{time.time_ns()}")]
        there = ["--database", postgres.database(f"there{time.time_ns()}")]
    old, new = tmp_path / "old", tmp_path / "new"
    here += ["--raw-logs", str(tmp_path / "raw")]
    there += ["--raw-logs", str(tmp_path / "raw-again")]
    small = {"DIAGNOSE_SERVE_SEGMENT": "64KiB", "DIAGNOSE_SERVE_FLUSH_S": "0.05", "DIAGNOSE_SERVE_RAW_WAIT_S": "0.1"}
    with Server(old, *here, **small) as server:
        pushing = Pushing(server)
        try:
            time.sleep(0.6)
            before = dict(pushing.acknowledged)
            made = diagnose("backup", str(tmp_path / "all"), "--data", str(old), *here)
            assert made.returncode == 0, made.stderr
        finally:
            pushing.end()
        assert all(size > 0 for size in before.values())
        server.kill()
    checked = diagnose("restore", str(tmp_path / "all"), "--check")
    assert (checked.returncode, checked.stdout[:6]) == (0, "whole:")
    done = diagnose("restore", str(tmp_path / "all"), "--data", str(new), *there)
    assert (done.returncode, done.stderr) == (0, "")
    with Server(new, *there, **small) as server:  # at once: nobody has the database
        for job in {job for job, _ in SOURCES}:
            received = {one["name"]: one["received"] for one in server.get(f"/v1/jobs/{job}/sources")["sources"]}
            server.get(f"/v1/jobs/{job}/report")  # waits until all is stored
            lines = server.lines(job)
            for one in (one for one in SOURCES if one[0] == job):
                source, size = one[1], received[one[1]]
                assert before[one] <= size <= len(pushing.sent[one])
                whole = pushing.sent[one][:size]
                kept = [line["text"].encode() for line in lines if line["source"] == source]
                assert kept == whole.splitlines()
                address, which = f"/v1/jobs/{job}/raw/download", {"source": source}
                until(lambda a=address, w=which, b=whole: server.client.get(a, params=w).content == b)  # type: ignore[misc]
                # The sender goes on where the copy ends.
                again = server.push(job, pushing.sent[one][size:] + b"one more\n", source=source, offset=size)
                assert again["next_offset"] == len(pushing.sent[one]) + 9
        server.push("another", b"new jobs get new numbers\n")
        assert server.get("/v1/jobs/another/sources")["sources"]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Settings, bytes]:
    """A data folder with a little in it, and its backup."""
    settings = Settings(data=tmp_path / "data")
    Journal(settings.data / "journal").close()
    segment = settings.data / "journal" / "00000000000000000001-00000000000000ff.journal"
    segment.write_bytes(b"diagnose journal 2\n\0\0\0\0\0")
    store = store_in(settings.data)

    def fill(connection: Connection) -> None:
        for number, state in enumerate(("proposed", "approved", "running", "succeeded")):
            row = {
                "key": str(number),
                "kind": "restart",
                "nodes": [],
                "why": "w",
                "state": state,
                "created": 1.0,
                "changed": 1.0,
            }
            connection.execute(insert(t.actions).values(**row))
        lease.take(connection, Claim("me", "here", "process 1"))

    store.write(fill)
    store.close()
    out = io.BytesIO()
    back_up(settings, out)
    return settings, out.getvalue()


def test_what_was_about_to_be_done_is_not_done_by_a_copy(made: tuple[Settings, bytes], tmp_path: Path) -> None:
    restore(io.BytesIO(made[1]), Settings(data=tmp_path / "copy"))
    store = Store.in_folder(tmp_path / "copy")
    wanted = select(t.actions.c.state).order_by(t.actions.c.id)
    states = store.read(lambda connection: connection.execute(wanted).scalars().all())
    assert states == ["proposed", "expired", "expired", "succeeded"]
    store.take(Claim("other", "there", "process 2"))  # nobody has it
    store.close()
    assert [path.name for path in (tmp_path / "copy" / "journal").glob("*.journal")]


@pytest.mark.parametrize("spoil", ["cut", "bit", "empty", "other"])
def test_a_spoilt_backup_is_refused_and_nothing_is_restored(made: tuple[Settings, bytes], tmp_path: Path, spoil: str) -> None:
    whole = made[1]
    middle = len(whole) // 2
    spoilt = {
        "cut": whole[:-100],
        "bit": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
        "empty": b"",
        "other": b"hello " * 1000,
    }[spoil]
    with pytest.raises(DiagnoseError, match="not a whole backup"):
        restore(io.BytesIO(spoilt), Settings(data=tmp_path / "copy"))
    assert not list((tmp_path / "copy").glob("*.db"))
    restore(io.BytesIO(whole), Settings(data=tmp_path / "copy"))


def test_a_backup_is_restored_into_nothing_that_is_in_use(made: tuple[Settings, bytes], tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="has something already"):
        restore(io.BytesIO(made[1]), made[0])
    with pytest.raises(DiagnoseError, match="no service here"):
        back_up(Settings(data=tmp_path / "nothing"), io.BytesIO())
    journal = Journal(tmp_path / "busy" / "journal")
    with pytest.raises(DiagnoseError, match="a service uses this folder"):
        restore(io.BytesIO(made[1]), Settings(data=tmp_path / "busy"))
    journal.close()


def test_a_damaged_database_is_not_backed_up_as_if_it_were_whole(made: tuple[Settings, bytes], tmp_path: Path) -> None:
    path = made[0].data / "diagnose.db"
    pages = bytearray(path.read_bytes())
    for at in range(20 * 4096, len(pages) - 4096, 8 * 4096):
        pages[at : at + 64] = b"\xff" * 64
    path.write_bytes(pages)
    with pytest.raises(DiagnoseError, match="the database is damaged"):
        back_up(made[0], io.BytesIO())
    assert unpack(io.BytesIO(made[1]), tmp_path / "look").records == 0
