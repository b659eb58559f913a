"""Which checkpoints of a training are there, and which can be evaluated."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints import keeper, manifest, marks
from diagnose.evaluate.arrivals import Arrival, Unfit, held, in_folder, of_service, unfit


def plain(folder: Path, *, at: float = 1000.0, text: str = "weights") -> Path:
    """As a program writes it that nobody here knows."""
    folder.mkdir(parents=True)
    (folder / "w.dat").write_text(text)
    os.utime(folder / "w.dat", (at, at))
    return folder


def sealed(folder: Path, step: int) -> Path:
    """As ``diagnose.checkpoints`` leaves it."""
    plain(folder)
    manifest.seal(folder, step)
    return folder


def only(folder: Path) -> Arrival:
    (found,) = in_folder(folder)
    return found


def test_a_folder_has_plain_ones_and_those_with_a_manifest(tmp_path: Path) -> None:
    plain(tmp_path / "step-100", at=500.0)
    sealed(tmp_path / "step_000000200", 200)
    plain(tmp_path / "logs")
    (tmp_path / "latest-300").symlink_to(tmp_path / "step-100")

    found = {one.path.name: one for one in in_folder(tmp_path)}
    assert {name: one.step for name, one in found.items()} == {"step-100": 100, "step_000000200": 200}
    assert found["step-100"].written_s == 500.0


def test_a_folder_above_checkpoints_is_none(tmp_path: Path) -> None:
    sealed(tmp_path / "run-7" / "step_000000200", 200)

    assert [one.path.name for one in in_folder(tmp_path)] == ["step_000000200"]


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert in_folder(tmp_path / "later") == []


def test_a_plain_one_must_have_been_left_alone(tmp_path: Path) -> None:
    now = time.time()
    plain(tmp_path / "step-100", at=now - 10)

    assert unfit(only(tmp_path), 60, now) == Unfit("it is still written", for_good=False)
    assert unfit(only(tmp_path), 5, now) is None


def test_one_with_a_manifest_is_complete_at_once(tmp_path: Path) -> None:
    sealed(tmp_path / "step_000000200", 200)
    assert unfit(only(tmp_path), 60, time.time()) is None


def test_a_changed_bit_is_found_before_it_is_evaluated(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "step_000000200", 200)
    (folder / "w.dat").write_text("weigh!s")

    problem = unfit(only(tmp_path), 60, time.time())
    assert problem is not None
    assert problem.for_good
    assert "w.dat" in problem.why
    assert unfit(only(tmp_path), 60, time.time(), read=False) is None, "a look at names and sizes does not see it"


def test_what_its_writer_has_not_finished_may_become_whole(tmp_path: Path) -> None:
    plain(tmp_path / "checkpoint-500")
    os.rename(tmp_path / "checkpoint-500" / "w.dat", tmp_path / "checkpoint-500" / "optimizer.pt")

    problem = unfit(only(tmp_path), 0, time.time())
    assert problem is not None
    assert not problem.for_good
    assert "trainer_state.json" in problem.why


def test_one_that_is_known_to_be_bad(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "step_000000200", 200)
    marks.write(folder, False, "the loss is 900")

    assert unfit(only(tmp_path), 60, time.time()) == Unfit("the loss is 900", for_good=True)


def test_a_verdict_that_is_written_later_does_not_make_it_another_one(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "step_000000200", 200)
    before = only(tmp_path)
    marks.write(folder, True, "it went on")
    assert only(tmp_path) == before


def test_an_empty_folder_waits(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    problem = unfit(only(tmp_path), 0, time.time() + 10)
    assert problem == Unfit("it has no files", for_good=False)


def test_the_list_of_a_service_and_what_is_not_here(tmp_path: Path) -> None:
    here, other = plain(tmp_path / "a-1"), plain(tmp_path / "b-2")
    rows: list[dict[str, Any]] = [
        {"step": 1, "path": str(here), "good": None, "why": None},
        {"step": 2, "path": str(other), "good": True, "why": None},
        {"step": 2, "path": str(other), "good": False, "why": "spoilt"},
        {"step": 3, "path": "/nowhere/step-3", "good": True, "why": None},
        {"step": 4, "path": "relative", "good": True},
        {"step": "5", "path": str(here) + "\0"},
        {},
    ]
    assert of_service(rows) == [Arrival(here, 1000.0, 1, None), Arrival(other, 1000.0, 2, "spoilt")]


def test_nobody_deletes_it_meanwhile(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "step_000000200", 200)
    assert not keeper.in_use(folder)
    with held(folder):
        assert keeper.in_use(folder)
    with held(plain(tmp_path / "step-1")):
        pass


@pytest.mark.parametrize("gone", ["deleted", "a file"])
def test_one_that_goes_away_waits(tmp_path: Path, gone: str) -> None:
    folder = plain(tmp_path / "step-1")
    arrival = only(tmp_path)
    (folder / "w.dat").unlink()
    folder.rmdir()
    if gone == "a file":
        folder.write_text("")
    problem = unfit(arrival, 0, time.time())
    assert problem is not None
    assert not problem.for_good
