"""With the real checkpointer of torchtitan on two processors, where it is installed: CI does not install it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from diagnose.errors import DiagnoseError
from tests.diagnose.checkpoints.ranks import on_ranks
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
torch = pytest.importorskip("torch")
pytest.importorskip("torchtitan.components.checkpointer.dcp")


class Counts:
    """Some state of a training."""

    def __init__(self) -> None:
        self.value = torch.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, given: dict[str, Any]) -> None:
        self.value = given["value"]


def checkpointer(folder: str, mode: str, keep: int = 0) -> tuple[Any, Any]:
    from torchtitan.components.checkpointer.dcp import CheckpointManager

    model = torch.nn.Linear(100, 100, bias=False)
    torch.nn.init.zeros_(model.weight)
    config = CheckpointManager.Config(enable=True, interval=4, last_save_model_only=False, keep_latest_k=keep, async_mode=mode)
    made = CheckpointManager(
        config,
        dataloader=Counts(),  # type: ignore[arg-type,unused-ignore]
        model_parts=[model],
        optimizers=Counts(),  # type: ignore[arg-type,unused-ignore]
        lr_schedulers=Counts(),  # type: ignore[arg-type,unused-ignore]
        states={"train_state": Counts()},
        sd_adapter=None,
        base_folder=folder,
    )
    return made, model


def trained(rank: int, folder: str, mode: str, steps: int) -> tuple[int, float]:
    from diagnose.checkpoints.hooks.torchtitan import Diagnosed

    made, model = checkpointer(folder, mode)
    Diagnosed(made, every_s=math.inf)
    made.load()
    begun = float(model.weight[0, 0])
    for step in range(int(begun) + 1, steps + 1):
        with torch.no_grad():
            model.weight += 1
        made.save(step, last_step=step == steps)
    made.close()
    return int(begun), float(model.weight[0, 0])


@pytest.mark.parametrize("mode", ["disabled", "async"])
def test_its_checkpoints_are_sealed_and_a_damaged_one_is_passed_over(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "out"
    assert on_ranks(2, tmp_path, trained, str(folder), mode, 10, longest_s=200) == [(0, 10.0)] * 2
    found = find(folder)
    assert [(one.path.name, check(one).state) for one in found] == [
        ("step-10", "whole"),
        ("step-8", "whole"),
        ("step-4", "whole"),
    ]
    flip(next(found[0].path.glob("*.distcp")), 5000)
    assert on_ranks(2, tmp_path, trained, str(folder), mode, 12, longest_s=200) == [(8, 12.0)] * 2


def test_two_that_delete_are_one_too_many(tmp_path: Path) -> None:
    from diagnose.checkpoints.hooks.torchtitan import Diagnosed

    made, _ = checkpointer(str(tmp_path), "disabled", keep=10)
    with pytest.raises(DiagnoseError, match="delete checkpoints as well"):
        Diagnosed(made)
