"""Past incidents in a file, found by words and by meaning."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose.agent.incidents import Incident, Similar, SqliteIncidents, Vectors
from diagnose.errors import DiagnoseError

STALE = Incident("a#1", "storage_error", "read of shard 17 gave 0 bytes, mount /fs0 is stale", "A mount was stale.")
LINK = Incident("b#1", "network_error", "link of port 3 on leaf switch flapped", "A link flapped.")


@pytest.fixture
def store(tmp_path: Path) -> SqliteIncidents:
    store = SqliteIncidents(tmp_path / "deep" / "incidents.db")
    store.remember(STALE, Vectors("m", [[1.0, 0.0]]))
    store.remember(LINK, Vectors("m", [[0.0, 1.0]]))
    return store


def found(similar: list[Similar]) -> list[tuple[str, int]]:
    return [(one.incident.id, one.line) for one in similar]


def test_words_find_the_same_message_with_other_values(store: SqliteIncidents) -> None:
    lines = ["step 12 done", "read of shard 99 gave 512 bytes, mount /mnt/other is stale"]
    similar = store.similar(lines, None, 5)
    assert found(similar) == [("a#1", 1)]
    assert similar[0].score == 1.0


@pytest.mark.parametrize("line", ["", "12 34 56", "the mount of the hill", "\x00\x1b[31m", '" OR "', "NEAR(a b)", "*"])
def test_a_word_or_none_in_common_finds_nothing(line: str, store: SqliteIncidents) -> None:
    assert store.similar([line], None, 5) == []


def test_vectors_find_what_words_do_not(store: SqliteIncidents) -> None:
    assert found(store.similar(["quite other words", "more"], Vectors("m", [[0.5, 0.5], [0.05, 1.0]]), 5)) == [("b#1", 1)]


@pytest.mark.parametrize(
    "vectors",
    [
        Vectors("another", [[1.0, 0.0]]),
        Vectors("m", [[1.0, 0.0, 0.0]]),
        Vectors("m", [[0.0, 0.0]]),
        Vectors("m", [[float("nan"), 1.0]]),
        Vectors("m", []),
    ],
    ids=["other model", "other size", "zero", "nan", "none"],
)
def test_vectors_that_cannot_be_compared_find_nothing(vectors: Vectors, store: SqliteIncidents) -> None:
    assert store.similar(["zzz"], vectors, 5) == []


def test_an_incident_is_remembered_once(store: SqliteIncidents) -> None:
    changed = Incident("a#1", "storage_error", "quite another root line", "It was something else.")
    store.remember(changed)
    assert store.incidents() == [LINK, changed]
    assert store.similar([STALE.line], None, 5) == []
    assert found(store.similar([changed.line], None, 5)) == [("a#1", 0)]


def test_the_most_similar_come_first_and_no_more_than_asked(store: SqliteIncidents) -> None:
    store.remember(Incident("c#1", "storage_error", "read of shard gave nothing as the mount was stale", "x"))
    lines = ["read of shard 99 gave 512 bytes, mount /mnt/other is stale"]
    assert found(store.similar(lines, None, 5)) == [("a#1", 0), ("c#1", 0)]
    assert found(store.similar(lines, None, 1)) == [("a#1", 0)]


def test_it_is_there_after_a_restart_and_serves_many_threads(store: SqliteIncidents) -> None:
    store.close()
    again = SqliteIncidents(store.path)
    with ThreadPoolExecutor(8) as threads:
        many = [threads.submit(again.remember, Incident(f"t{n}#1", "hang", f"odd word{n}", "x")) for n in range(40)]
        for one in many:
            one.result()
        answers = list(threads.map(lambda n: again.similar([STALE.line], None, 1), range(40)))
    assert all(found(one) == [("a#1", 0)] for one in answers)
    assert len(again.incidents()) == 42


def test_a_file_that_is_none_or_newer_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database at all, but a text" * 99)
    with pytest.raises(DiagnoseError, match="give a file"):
        SqliteIncidents(tmp_path / "x.db")
    with sqlite3.connect(tmp_path / "y.db") as base:
        base.execute("pragma user_version = 99")
    with pytest.raises(DiagnoseError, match="later version"):
        SqliteIncidents(tmp_path / "y.db")
