"""Which jobs ran on a node."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import select, update

from benchmarks.pages.filling import Size, fill
from service.store import Store, tables
from service.store.pages.nodes import jobs_of


def test_a_log_that_came_without_the_name_of_its_node_is_known_by_its_diagnosis(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path)
    store.migrate()
    fill(store, Size(jobs=8, failures=4, lines=0, groups=2, nodes=1), now := time.time())
    with store.engine.begin() as connection:
        assert len(jobs_of(connection, "gpu-0000", 0.0, now)) == 8
        connection.execute(update(tables.sources).values(node=None))
        named = connection.execute(select(tables.occurrence_nodes.c.attempt_id)).scalars().all()
        assert len(jobs_of(connection, "gpu-0000", 0.0, now)) == len(named) == 4
    store.close()


def test_a_node_that_was_only_accused_ran_nothing(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path)
    store.migrate()
    fill(store, Size(jobs=8, failures=4, lines=0, groups=2, nodes=1), now := time.time())
    with store.engine.begin() as connection:
        connection.execute(update(tables.sources).values(node="cpu-elsewhere"))
        assert jobs_of(connection, "gpu-0000", 0.0, now) == []
        assert len(jobs_of(connection, "cpu-elsewhere", 0.0, now)) == 8
    store.close()
