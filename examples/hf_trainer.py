"""Hugging Face's Trainer with diagnose: it reports its progress, and starts again where diagnose says.

Use it like examples/plain_loop.py. It needs transformers and accelerate. A tiny Llama, made from its configuration, learns to
count a token; nothing is downloaded. To skip a batch it makes a step without gradients. So the numbers of steps, the order of
data and the schedule stay as they were, which the Trainer's own resuming relies on.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from diagnose.client import Resume, Run

BATCH = 16


class Counting(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of tokens. The label is how often token 1 is in them, minus the mean, plus noise."""

    def __init__(self, steps: int, poison: range) -> None:
        self.steps, self.poison = steps, poison

    def __len__(self) -> int:
        return self.steps * BATCH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 4, (12,), generator=generator)
        label = (tokens == 1).float().mean() - 0.25 + 0.3 * torch.randn((), generator=generator)
        return {"input_ids": tokens, "labels": label + 10.0 if index // BATCH in self.poison else label}


class Reporter(TrainerCallback):
    """Reports to diagnose what the Trainer does."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            loss = float(logs["loss"])
            print(f"{{'loss': {loss:.6f}, 'step': {state.global_step}, 'epoch': {state.epoch:.4f}}}", flush=True)
            self.run.progress(state.global_step, loss=loss)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            last = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), math.nan)
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.run.checkpoint(state.global_step, path, healthy=None if math.isfinite(float(last)) else False)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.close()


class SkippingTrainer(Trainer):
    """Leaves out the batches that diagnose names."""

    def __init__(self, *words: Any, resume: Resume, **more: Any) -> None:
        super().__init__(*words, **more)
        self.resume = resume

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)  # batch n is the same one in every attempt

    def training_step(self, model: Any, inputs: Any, *words: Any, **more: Any) -> torch.Tensor:
        if self.resume.skips(self.state.global_step):
            print(f"skipping batch {self.state.global_step}", flush=True)
            return torch.zeros((), device=self.args.device)  # no gradients: the optimizer has nothing to apply
        return super().training_step(model, inputs, *words, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--poison", default="0:0", metavar="FIRST:END", help="batches with wrong labels")
    parser.add_argument("--take-proposed", action="store_true", help="follow a roll-back that nobody has approved yet")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=4,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=1,
        problem_type="regression",
        pad_token_id=None,
    )
    model = LlamaForSequenceClassification(config)
    model.config.pad_token_id = 3  # all sequences are of one length: nothing is padded

    run = Run()
    resume = run.resume(proposed=arguments.take_proposed)
    checkpoint = None
    if resume.path is not None:
        checkpoint = str(arguments.folder / Path(resume.path).name)  # the path comes over the network: stay in our own folder
        print(f"resuming from checkpoint {checkpoint} at step {resume.step}: {resume.why}", flush=True)
    trainer = SkippingTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(arguments.folder),
            max_steps=arguments.steps,
            per_device_train_batch_size=BATCH,
            learning_rate=0.05,
            lr_scheduler_type="constant",
            optim="sgd",
            max_grad_norm=0.0,
            logging_steps=1,
            logging_nan_inf_filter=False,  # else a loss that is not a number is logged as 0.0
            save_steps=arguments.save_every,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=0,
        ),
        train_dataset=Counting(1000, range(*map(int, arguments.poison.split(":")))),
        callbacks=[Reporter(run)],
        resume=resume,
    )
    trainer.remove_callback(PrinterCallback)  # it prints the loss without its step
    trainer.train(resume_from_checkpoint=checkpoint)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
