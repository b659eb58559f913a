from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints import manifest
from diagnose.checkpoints.around import Around
from diagnose.client import Resume
from tests.diagnose.checkpoints.samples import flip, trainer


class Told:
    """In place of the client."""

    def __init__(self, answer: Resume | None = None) -> None:
        self.answer = answer or Resume()
        self.told: list[tuple[int, bool | None]] = []

    def resume(self, *, proposed: bool = False) -> Resume:
        return self.answer

    def checkpoint(
        self, step: int, path: Path, *, healthy: bool | None = None, why: str | None = None, cost_s: float | None = None
    ) -> None:
        self.told.append((step, healthy))


def test_what_another_program_wrote_is_sealed_judged_and_verified(tmp_path: Path) -> None:
    told = Told()
    around = Around(tmp_path, told)  # type: ignore[arg-type]
    for step in (100, 200):
        around.saved(trainer(tmp_path, step), step)
    assert told.told == [(100, None), (100, None), (200, None), (100, True), (200, None)]
    assert around.resume().path == tmp_path / "checkpoint-200"
    weights = tmp_path / "checkpoint-200" / "model.safetensors"
    flip(weights, weights.stat().st_size - 3)  # safetensors itself would not see it
    found = around.resume()
    assert (found.step, found.path) == (100, tmp_path / "checkpoint-100")
    assert "Passed over: checkpoint-200: model.safetensors: bytes 0 to" in found.why
    assert told.told[-1] == (200, False)


def test_a_step_that_is_written_again_in_its_place_is_judged_anew(tmp_path: Path) -> None:
    for step in (100, 200):
        Around(tmp_path).saved(trainer(tmp_path, step), step)
    weights = tmp_path / "checkpoint-200" / "model.safetensors"
    flip(weights, weights.stat().st_size - 3)
    around = Around(tmp_path)
    assert around.resume().step == 100
    shutil.rmtree(tmp_path / "checkpoint-200")
    for before in (None, "diagnose-verdict.json"):  # some writers clear the folder, and some do not
        if before is not None:
            (tmp_path / "checkpoint-200" / before).write_text('{"good": false, "why": "it was damaged", "at": 1.0}')
        around.saved(trainer(tmp_path, 200) if before is None else tmp_path / "checkpoint-200", 200)
        assert Around(tmp_path).resume().step == 200


def test_while_a_step_is_sealed_again_no_alarm_judges_by_what_was_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    around, seal = Around(tmp_path), manifest.seal
    path = trainer(tmp_path, 200)
    around.saved(path, 200)

    def meanwhile(*words: Any) -> Any:
        around.keeper.alarm(190, "the loss is nan")
        assert not (path / "diagnose-verdict.json").exists()
        return seal(*words)

    monkeypatch.setattr(manifest, "seal", meanwhile)
    around.saved(path, 200)


def test_a_roll_back_before_all_of_them_is_not_taken_for_no_checkpoint(tmp_path: Path) -> None:
    Around(tmp_path).saved(trainer(tmp_path, 200), 200)
    back = Told(Resume(step=100, skip=((120, 140),), known=True))
    found = Around(tmp_path, back).resume()  # type: ignore[arg-type]
    assert (found.path, found.passed_over, "a roll-back goes back to step 100" in found.why) == (None, 1, True)
    assert Around(tmp_path / "none").resume().passed_over == 0


def test_one_that_nobody_sealed_is_taken_if_it_is_complete(tmp_path: Path) -> None:
    trainer(tmp_path, 100)
    (trainer(tmp_path, 200) / "trainer_state.json").unlink()
    found = Around(tmp_path).resume()
    assert (found.step, "checkpoint-200: trainer_state.json: it is missing" in found.why) == (100, True)


def test_a_roll_back_is_followed_and_remembered(tmp_path: Path) -> None:
    for step in (100, 200):
        Around(tmp_path).saved(trainer(tmp_path, step), step)
    back = Told(Resume(step=100, skip=((120, 140),), known=True))
    found = Around(tmp_path, back).resume()  # type: ignore[arg-type]
    assert (found.step, found.skips(130), found.skips(141)) == (100, True, False)
    assert Around(tmp_path).resume().step == 100


def test_old_ones_are_deleted_only_if_it_is_asked_for(tmp_path: Path) -> None:
    for number, keep in ((4, None), (8, 2)):
        around = Around(tmp_path, keep=keep)
        for step in range(number - 3, number + 1):
            around.saved(trainer(tmp_path, step), step)
        # the first of the day stays too
        assert len(list(tmp_path.iterdir())) == (4 if keep is None else 3)


def test_what_another_program_left_unsealed_is_never_deleted(tmp_path: Path) -> None:
    """It was there before diagnose was."""
    import os

    old = trainer(tmp_path, 50)
    os.utime(old, (1, 1))
    around = Around(tmp_path, keep=1)
    for step in (100, 200, 300):
        around.saved(trainer(tmp_path, step), step)
    assert old.is_dir()
