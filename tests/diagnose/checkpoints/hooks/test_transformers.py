"""With the real Trainer of transformers."""

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
pytest.importorskip("transformers")
pytest.importorskip("accelerate")


class Line(torch.nn.Module):  # type: ignore[misc,name-defined]
    """The smallest model that the Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, numbers: Any, labels: Any) -> dict[str, Any]:
        guess = self.layer(torch.nn.functional.dropout(numbers, 0.2, self.training)).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}


def trained(folder: Path, steps: int, *, kill_at: int | None = None, every_s: float = math.inf) -> Any:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from diagnose.checkpoints.hooks.transformers import Diagnosed

    class Kill(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGTERM)

    generator = torch.Generator().manual_seed(1)
    rows = [{"numbers": torch.randn(8, generator=generator), "labels": torch.randn((), generator=generator)} for _ in range(64)]
    diagnosed = Diagnosed(folder, every_s=every_s)
    trainer = Trainer(
        model=Line(),
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=4,
            logging_steps=1,
            save_steps=4,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=rows,
        callbacks=[diagnosed, Kill()],
    )
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    try:
        trainer.train(resume_from_checkpoint=diagnosed.begin())
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGUSR1, before[1])
    return diagnosed


def test_its_checkpoints_are_sealed_and_a_changed_weight_is_passed_over(tmp_path: Path) -> None:
    trained(tmp_path, 12)
    assert [(one.step, check(one).state) for one in find(tmp_path)] == [(12, "whole"), (8, "whole"), (4, "whole")]

    weights = tmp_path / "checkpoint-12" / "model.safetensors"
    flip(weights, weights.stat().st_size - 2)
    again = trained(tmp_path, 12)
    assert again.found.step == 8
    assert "checkpoint-12: model.safetensors: bytes 0 to" in again.found.why
    assert again.exactness.state == "equal", again.exactness.why


def test_sigterm_saves_and_ends(tmp_path: Path) -> None:
    trained(tmp_path, 12, kill_at=5)
    assert [(one.step, check(one).state) for one in find(tmp_path)] == [(6, "whole"), (4, "whole")]
