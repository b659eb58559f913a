"""A plain PyTorch loop with diagnose: it reports its progress, and starts again where diagnose says.

    diagnose serve &
    export DIAGNOSE_URL=http://127.0.0.1:8321 DIAGNOSE_JOB=demo
    diagnose runner --job demo -- python examples/plain_loop.py --poison 120:126   # the loss goes up and stays there
    curl -s $DIAGNOSE_URL/v1/jobs/demo/report                                      # loss_anomaly: roll back and skip
    diagnose runner --job demo --attempt 2 -- python examples/plain_loop.py --poison 120:126 --take-proposed

The second run starts at a checkpoint from before the spike, leaves the bad batches out, and its loss goes on falling. A tiny
model on the CPU; ``--poison`` spoils the labels of some batches, like a broken shard of data.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch

from diagnose.client import Run


def batch(number: int, poison: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Batch ``number`` of the data. It is always the same one, so that skipping it makes sense."""
    generator = torch.Generator().manual_seed(number)
    x = torch.rand(64, 8, generator=generator)
    y = torch.tanh(x.sum(1, keepdim=True) - 4.0) + 0.1 * torch.randn(64, 1, generator=generator)
    return x, y + 60.0 if number in poison else y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--poison", default="0:0", metavar="FIRST:END", help="batches with wrong labels")
    parser.add_argument("--take-proposed", action="store_true", help="follow a roll-back that nobody has approved yet")
    arguments = parser.parse_args()
    poison = range(*map(int, arguments.poison.split(":")))
    arguments.folder.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    run = Run()
    # With several ranks: ask on rank 0 and broadcast the answer, because all must start alike.
    resume = run.resume(proposed=arguments.take_proposed)
    start = 0
    if resume.path is not None:
        # The path comes over the network: stay in our own folder, and load tensors only.
        path = arguments.folder / Path(resume.path).name
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
        print(f"resuming from checkpoint {path} at step {start}: {resume.why}", flush=True)

    for step in range(start, arguments.steps):
        if resume.skips(step):
            print(f"skipping batch {step}", flush=True)
            continue
        x, y = batch(step, poison)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step: {step} | loss: {loss.item():.6f} | lr: {optimizer.param_groups[0]['lr']}", flush=True)
        run.progress(step, loss=loss.item())
        if (step + 1) % arguments.save_every == 0:
            path = arguments.folder / f"step{step + 1}.pt"
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path)
            run.checkpoint(step + 1, path, healthy=None if math.isfinite(loss.item()) else False)
    run.close()
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
