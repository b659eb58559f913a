"""One service has a database: a second one is refused, and one that was taken for dead cannot write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from diagnose.errors import DiagnoseError
from service.store import Store
from service.store import tokens as stored
from service.store.lease import STALE_S, Claim, LeaseLost
from tests.conftest import ROOT
from tests.support.servers import Server

A, B = Claim("a1", "folder-a", "process 1 on here"), Claim("b1", "folder-b", "process 2 on there")
AGAIN = Claim("a2", "folder-a", "process 3 on here")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.db'}"
    name = "lease_" + "".join(c for c in request.node.name if c.isalnum()).lower()[-40:]
    return str(request.getfixturevalue("postgres").database(name))


def age(store: Store, by_s: float) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("update lease set beat = beat - :by"), {"by": by_s})


def token(store: Store, name: str) -> None:
    store.write(lambda connection: stored.create(connection, name, "read"))


def test_who_comes_second_is_refused_until_the_first_is_silent_for_long(url: str) -> None:
    first, second = Store(url), Store(url)
    assert first.take(A) is None
    with pytest.raises(DiagnoseError, match=r"another service uses this database: process 1 on here, heard of \d s ago"):
        second.take(B)
    age(first, STALE_S + 1)
    assert second.take(B) == "process 1 on here"
    first.close()
    second.close()


def test_who_comes_back_to_its_folder_after_a_crash_need_not_wait(url: str) -> None:
    first, second = Store(url), Store(url)
    first.take(A)
    assert second.take(AGAIN) is None
    first.close()
    second.close()


def test_who_was_taken_for_dead_cannot_write_any_more(url: str) -> None:
    """It stood still, or was cut off, and goes on later: nothing of it reaches the database."""
    first, second = Store(url), Store(url)
    first.take(A)
    token(first, "before")
    age(first, STALE_S + 1)
    second.take(B)
    with pytest.raises(LeaseLost):
        token(first, "after")
    with pytest.raises(LeaseLost):
        first.beat()
    token(second, "second")
    second.beat()
    assert [one.name for one in second.read(stored.listed)] == ["before", "second"]
    first.close()
    second.close()


def test_a_heartbeat_keeps_it_and_who_ends_gives_it_back_at_once(url: str) -> None:
    first, second = Store(url), Store(url)
    first.take(A)
    age(first, STALE_S + 1)
    first.beat()
    with pytest.raises(DiagnoseError, match="another service"):
        second.take(B)
    first.give_back()
    assert second.take(B) == "process 1 on here"
    first.close()
    second.close()


def test_a_clock_that_was_set_back_does_not_lock_it_for_ever(url: str) -> None:
    first, second = Store(url), Store(url)
    first.take(A)
    age(first, -7200)
    second.take(B)
    first.close()
    second.close()


# --- from outside


def serve(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnose", "serve", "--data", str(data), "--port", "0", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=data.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Its one line."""
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.server
def test_a_second_service_is_refused_on_one_folder_and_on_one_database(url: str, tmp_path: Path) -> None:
    with Server(tmp_path / "one", "--database", url) as running:
        line = refused(serve(tmp_path / "two", "--database", url))
        assert "another service uses this database: process " in line
        assert str(tmp_path / "one") in line
        assert "stop it, or give this one a --database of its own" in line
        assert "another service uses this folder" in refused(serve(tmp_path / "one", "--database", url))
        running.push("job", b"RuntimeError: boom\n", source="s", offset=0)
        running.kill()
        assert "another service uses this database" in refused(serve(tmp_path / "two", "--database", url))
        running.start()
        running.push("job", b"one more\n", source="s", offset=19)
        assert running.stop() == 0
    with Server(tmp_path / "two", "--database", url) as after:
        assert "what only that one's journal has is not read here" in after.log


@pytest.mark.server
def test_a_database_of_a_newer_version_is_one_line(url: str, tmp_path: Path) -> None:
    store = Store(url)
    store.migrate()
    store.close()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    engine.dispose()
    line = refused(serve(tmp_path / "data", "--database", url))
    assert "the database was made by another version of diagnose" in line
    assert "install the version that made it" in line
