"""Small checkpoints as the writers leave them, made without torch."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from pathlib import Path

from diagnose.checkpoints import manifest


def archive(path: Path, size: int = 3000, seed: int = 1) -> Path:
    """A file as torch.save writes it: a ZIP without compression."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{path.stem}/data.pkl", b"\x80\x02}q\x00.")
        made.writestr(f"{path.stem}/data/0", random.Random(seed).randbytes(size))
        made.writestr(f"{path.stem}/version", b"3\n")
    return path


def tensors(path: Path, names: tuple[str, ...] = ("a", "b")) -> Path:
    """A file of safetensors, with a tensor of 10 numbers for each name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {name: {"dtype": "F32", "shape": [2, 5], "data_offsets": [40 * n, 40 * n + 40]} for n, name in enumerate(names)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(40 * len(names)))
    return path


def trainer(folder: Path, step: int) -> Path:
    """As the Hugging Face Trainer leaves it."""
    made = folder / f"checkpoint-{step}"
    tensors(made / "model.safetensors")
    archive(made / "optimizer.pt")
    archive(made / "rng_state.pth")
    (made / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return made


def sealed(folder: Path, step: int, size: int = 3000) -> Path:
    """As ours: any files, and a manifest of them."""
    made = folder / f"step_{step:09}"
    for rank in range(2):
        archive(made / f"__{rank}_0.distcp", size, seed=step + rank)
    (made / ".metadata").write_bytes(b"plan")
    manifest.seal(made, step)
    return made


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
