"""With the real DeepSpeed on two processors, where it is installed: CI does not install it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from tests.diagnose.checkpoints.ranks import on_ranks
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
pytest.importorskip("torch")
pytest.importorskip("deepspeed")


def trained(rank: int, folder: str, steps: int) -> tuple[int | None, str, list[float], str | None]:
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE="2")
    import deepspeed
    import torch

    from diagnose.checkpoints.hooks.deepspeed import Diagnosed

    torch.manual_seed(5)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    diagnosed = Diagnosed(engine, folder, every_s=math.inf, every_steps=4)
    begun = diagnosed.begin()
    losses = []
    for step in range(engine.global_steps, steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        numbers = torch.randn(4, 8, generator=generator)
        loss: Any = engine(numbers).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        diagnosed.stepped(loss.item())
    diagnosed.close()
    exactness = diagnosed.beside.exactness
    return begun.step, begun.why, losses, exactness.state if exactness is not None else None


def test_its_checkpoints_are_sealed_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    undisturbed = on_ranks(2, tmp_path, trained, str(folder), 12, longest_s=240)
    found = find(folder)
    assert [(one.path.name, check(one).state) for one in found] == [
        ("global_step12", "whole"),
        ("global_step8", "whole"),
        ("global_step4", "whole"),
    ]
    flip(found[0].path / "mp_rank_00_model_states.pt", 1500)
    again = on_ranks(2, tmp_path, trained, str(folder), 12, longest_s=240)
    for rank in range(2):
        assert again[rank][0] == 8
        assert "global_step12: mp_rank_00_model_states.pt" in again[rank][1]
        assert again[rank][2] == undisturbed[rank][2][8:], "bit by bit"
    assert again[0][3] == "equal"
