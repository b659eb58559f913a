"""A small language model that is killed, finds damage and goes back, and still trains as if nothing had happened.

    python examples/checkpoints.py --folder ckpt

It learns the characters of the help texts that Python ships. DIAGNOSE_URL and DIAGNOSE_JOB name a service; without them it
runs alone. Kill it, change a bit in its newest checkpoint, start it again: it goes on from the newest checkpoint that is whole
and not known to be bad, and its losses are those of a run that nobody touched, bit by bit.

What that takes is in the state: weights, optimizer, random numbers. The order of the data follows from the number of the step.
"""

from __future__ import annotations

import argparse
import os
import pydoc_data.topics
import signal
from pathlib import Path

import torch
from torch import nn

from diagnose.checkpoints import Checkpoints
from diagnose.client import Run

LENGTH, BATCH, SYMBOLS = 64, 8, 128


class Model(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, SYMBOLS)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.symbols(symbols) + self.places(torch.arange(LENGTH))
        return self.out(self.layers(hidden, mask=mask, is_causal=True))


def batch(text: torch.Tensor, step: int) -> torch.Tensor:
    """Batch n is the same one in every attempt."""
    generator = torch.Generator().manual_seed(step)
    begins = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator)
    return torch.stack([text[begin : begin + LENGTH + 1] for begin in begins])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--width", type=int, default=320, help="320 with 3 layers are 3.8 million parameters")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--poison", default="0:0", metavar="FIRST:END", help="batches whose gradients are far too large")
    parser.add_argument("--kill-at", type=int, help="end with SIGKILL after this step")
    parser.add_argument("--take-proposed", action="store_true", help="follow a roll-back that nobody has approved yet")
    given = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    topics = "".join(pydoc_data.topics.topics.values()).encode("ascii", "replace")
    text = torch.frombuffer(bytearray(topics), dtype=torch.uint8).long().clamp(max=SYMBOLS - 1)
    model = Model(given.width, given.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for parameter in model.parameters():  # the optimizer makes its state now, so that a checkpoint has where to go
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    random = torch.get_rng_state()

    checkpoints = Checkpoints(given.folder, Run())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random}
    start = checkpoints.resume(state, proposed=given.take_proposed)
    if start.path is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    print(f"resuming at step {start.step}: {start.why}", flush=True)

    poison = range(*map(int, given.poison.split(":")))
    for step in range(start.step, given.steps):
        if start.skips(step):
            print(f"skipping batch {step}", flush=True)
            continue
        symbols = batch(text, step)
        loss = nn.functional.cross_entropy(model(symbols[:, :-1]).flatten(0, 1), symbols[:, 1:].flatten())
        optimizer.zero_grad()
        (loss * 100 if step in poison else loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        print(f"step: {step} | loss: {loss.item():.6f} | lr: 0.02", flush=True)
        checkpoints.loss(step + 1, loss.item())
        if (step + 1) % given.save_every == 0:
            now = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
            checkpoints.save(step + 1, now, loss=loss.item())
        if step + 1 == given.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoints.close()
    if checkpoints.losses is not None and checkpoints.losses.exactness is not None:
        print(f"{checkpoints.losses.exactness.state}: {checkpoints.losses.exactness.why}", flush=True)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
