"""With the real Lightning, where it is installed: CI does not install it."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from tests.diagnose.checkpoints.samples import flip

pytestmark = pytest.mark.server
torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")


def trained(
    folder: Path, steps: int, *, kill_at: int | None = None, every_s: float = math.inf, devices: int = 1, **how: Any
) -> Any:
    from diagnose.checkpoints.hooks.lightning import Diagnosed

    class Line(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            if self.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGTERM)
            numbers, labels = batch
            return torch.nn.functional.mse_loss(self.layer(numbers).squeeze(-1), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(256, 8, generator=generator), torch.randn(256, generator=generator))
    diagnosed = Diagnosed(folder, every_s=every_s, every_steps=4)
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=devices,
        callbacks=[diagnosed],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **how,
    )
    trainer.fit(Line(), torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=diagnosed.begin())
    return diagnosed


def test_its_checkpoints_are_sealed_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    trained(tmp_path, 12)
    found = find(tmp_path)
    assert [(one.path.name, check(one).state) for one in found] == [
        ("step_000000012", "whole"),
        ("step_000000008", "whole"),
        ("step_000000004", "whole"),
    ]
    flip(found[0].path / "model.ckpt", 1500)
    again = trained(tmp_path, 20)
    assert again.found.step == 8
    assert "step_000000012: model.ckpt" in again.found.why
    assert again.beside.exactness.state == "not exact"  # Lightning itself warns that this loader cannot go on where it was
    assert "the order of the data" in again.beside.exactness.why


def test_the_signal_of_a_scheduler_saves_and_ends(tmp_path: Path) -> None:
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    with pytest.raises(SIGTERMException):
        trained(tmp_path, 50, kill_at=6)
    assert next(one.step for one in find(tmp_path)) in (6, 7)


def test_it_saves_when_it_is_time_and_deletes_old_ones(tmp_path: Path) -> None:
    trained(tmp_path, 10, every_s=0.0)
    assert [one.step for one in find(tmp_path)][:3] == [10, 9, 8]


def test_what_nobody_can_seal_is_refused(tmp_path: Path) -> None:
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    with pytest.raises(Exception, match="does not say when a checkpoint is complete"):
        trained(tmp_path, 4, plugins=[AsyncCheckpointIO()])


def test_two_ranks_save_alike(tmp_path: Path) -> None:
    trained(tmp_path, 8, devices=2, strategy="ddp_fork")
    assert [(one.step, check(one).state) for one in find(tmp_path)] == [(8, "whole"), (4, "whole")]
