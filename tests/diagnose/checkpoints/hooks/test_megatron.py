"""With the real writer of Megatron Core on two processors, where it is installed."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from diagnose.errors import DiagnoseError
from tests.diagnose.checkpoints.hooks import megatron_loop as loop
from tests.diagnose.checkpoints.ranks import on_ranks
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]
torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core.dist_checkpointing")


def trained(
    rank: int, folder: str, steps: int, behind: bool, every_s: float = math.inf, each: Any = None
) -> tuple[int, float, str | None]:
    """The step that it began after, a weight at the end, and on rank 0 whether it was exact."""
    from diagnose.checkpoints.hooks.megatron import Diagnosed

    loop.on_processors()
    loop.ARGS.save = loop.ARGS.load = folder
    loop.ARGS.async_save = behind
    model = torch.nn.Linear(50_000, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    diagnosed = Diagnosed(loop, every_s=every_s)
    try:
        begun = loop.pretrain(steps, model, each)
    finally:
        diagnosed.close()
    assert loop.ARGS.ckpt_step is None
    exactness = diagnosed.beside.exactness if diagnosed.beside is not None else None
    return begun, float(model.weight.data[0, 0]), exactness.state if exactness is not None else None


@pytest.mark.parametrize("behind", [False, True])
def test_its_checkpoints_are_sealed_and_a_damaged_one_is_passed_over(tmp_path: Path, behind: bool) -> None:
    folder = tmp_path / "out"
    first = on_ranks(2, tmp_path, trained, str(folder), 12, behind, longest_s=300)
    assert [one[:2] for one in first] == [(0, 12.0)] * 2
    found = find(folder)
    assert [(one.path.name, check(one).state) for one in found] == [
        ("iter_0000012", "whole"),
        ("iter_0000008", "whole"),
        ("iter_0000004", "whole"),
    ]
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "12"
    flip(next(found[0].path.glob("*.distcp")), 5000)

    again = on_ranks(2, tmp_path, trained, str(folder), 14, behind, longest_s=300)
    assert [one[:2] for one in again] == [(8, 14.0)] * 2, "although the tracker names the damaged one"
    assert again[0][2] == "equal"
    assert check(find(folder)[0]).state == "whole", "Megatron wrote step 12 again in its place"
    assert [one[0] for one in on_ranks(2, tmp_path, trained, str(folder), 14, behind, longest_s=300)] == [12, 12]


def ends_at_six(iteration: int) -> None:
    time.sleep(0.02)
    if iteration == 5 and torch.distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("behind", [False, True])
def test_the_signal_of_a_scheduler_saves_and_ends(tmp_path: Path, behind: bool) -> None:
    """It comes to the other rank; both save after the same step."""
    folder = tmp_path / "out"
    ended = on_ranks(2, tmp_path, trained, str(folder), 400, behind, math.inf, ends_at_six, longest_s=300)
    step = ended[0][1]
    assert {one[1] for one in ended} == {step}
    assert 6 <= step < 400, "ranks ask each other at least once per second"
    found = find(folder)
    assert (found[0].step, {check(one).state for one in found}) == (step, {"whole"})


def seldom(iteration: int) -> None:
    loop.ARGS.save_interval = 10**9
    time.sleep(0.05)


def test_it_saves_when_it_is_time_and_deletes_old_ones(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    on_ranks(2, tmp_path, trained, str(folder), 60, False, 0.0, seldom, longest_s=300)
    found = find(folder)
    assert 3 <= len(found) <= 4, "the newest three, and the first of the day"
    assert {check(one).state for one in found} == {"whole"}


def not_sealed_early(rank: int, folder: str) -> list[bool]:
    """Whether it had a manifest: as soon as it was scheduled, when its files were there, when it was finished."""
    from diagnose.checkpoints.hooks.megatron import Diagnosed

    loop.on_processors()
    loop.ARGS.save = loop.ARGS.load = folder
    loop.ARGS.async_save = True
    diagnosed = Diagnosed(loop, every_s=math.inf)
    manifest = Path(folder) / "iter_0000004" / "diagnose-manifest.json"
    model = torch.nn.Linear(50_000, 2, bias=False)
    loop.save_checkpoint(4, model)
    told = [manifest.exists()]
    loop.QUEUE.async_calls[0].async_caller.process.join()  # all is written, and nobody has finished it
    told.append(manifest.exists())
    loop.maybe_finalize_async_save(blocking=True)
    diagnosed.close()
    told.append(manifest.exists() if rank == 0 else True)
    loop.save_checkpoint(5, model, non_persistent_ckpt=True)
    loop.maybe_finalize_async_save(blocking=True)
    return told


def test_what_is_written_behind_the_training_is_sealed_when_it_is_finished_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert on_ranks(2, tmp_path, not_sealed_early, str(folder), longest_s=300) == [[False, False, True]] * 2
    assert [one.sealed for one in find(folder)] == [False, True], "those that are not persistent are Megatron's own"


def test_two_that_delete_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from diagnose.checkpoints.hooks.megatron import Diagnosed

    monkeypatch.setattr(loop.ARGS, "save", str(tmp_path))
    monkeypatch.setattr(loop.ARGS, "save_retain_interval", 100)
    diagnosed = Diagnosed(loop)
    try:
        with pytest.raises(DiagnoseError, match="delete checkpoints as well"):
            loop.load_checkpoint(None, None, None)
    finally:
        diagnosed.close()
