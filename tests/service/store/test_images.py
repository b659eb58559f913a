"""What failed first with which image."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, select

from service.store import Store, reading
from service.store import tables as t
from service.store.pages import images

OLD, NEW = "train:25.10", "train:25.11"


@pytest.fixture
def filled(store: Store) -> Store:
    """Group 1 fails since the old image, group 2 only with the new one, group 3 in a job without an image."""
    failed = [(1, OLD, 100.0, 1), (2, NEW, 200.0, 1), (3, NEW, 210.0, 2), (4, NEW, 220.0, 2), (5, None, 230.0, 3)]

    def write(connection: Any) -> None:
        for group in (1, 2, 3):
            first = min(at for _, _, at, its in failed if its == group)
            values = {"id": group, "fingerprint": f"g{group}", "category": "script", "reason": "key_error", "title": "t"}
            seen = {"first_seen": first, "last_seen": 230.0, "count": 2, "state": "open"}
            connection.execute(insert(t.groups).values(**values, **seen))
        for number, image, at, group in failed:
            labels = {"image": image} if image else {}
            job = {"id": number, "name": f"j{number}", "labels": labels, "attempt": 1, "state": "ended", "outcome": "failed"}
            connection.execute(insert(t.jobs).values(**job, first_seen=at - 10, last_seen=at))
            attempt = {"id": number, "job_id": number, "number": 1, "state": "ended", "outcome": "failed", "lsn": 0}
            connection.execute(insert(t.attempts).values(**attempt, started_at=at - 10, last_seen=at))
            what = {"category": "script", "reason": "key_error"}
            connection.execute(insert(t.occurrences).values(attempt_id=number, group_id=group, job_id=number, at=at, **what))

    store.write(write)
    return store


def test_a_failure_that_began_with_an_image_is_new_with_it(filled: Store) -> None:
    began = {group: filled.read(lambda c, group=group: images.beginning(c, group)) for group in (1, 2, 3)}
    assert began == {
        1: images.Beginning(OLD, 90.0, new=False),  # no job is older than this image
        2: images.Beginning(NEW, 190.0, new=True),
        3: None,
    }


def test_the_list_has_the_failures_of_an_image_and_those_that_are_new_with_it(filled: Store) -> None:
    def listed(image: str, new: bool) -> set[int]:
        def rows(connection: Any) -> Any:
            clause = images.new_with(connection, image) if new else None
            return reading.groups(connection, limit=10, among=[images.failed_with(image)], clause=clause)

        return {row["id"] for row in filled.read(rows)}

    assert (listed(OLD, False), listed(NEW, False)) == ({1}, {1, 2})
    assert (listed(NEW, True), listed("train:none", True)) == ({2}, set())
    assert filled.read(lambda c: c.execute(select(t.groups.c.id)).scalars().all()) == [1, 2, 3]


def test_images_of_a_failure_are_counted(filled: Store) -> None:
    assert filled.read(lambda c: images.counted(c, 1)) == [(OLD, 1), (NEW, 1)]
    assert filled.read(lambda c: images.counted(c, 3)) == []
