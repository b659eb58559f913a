"""A folder -> the checkpoints in it, newest first, and which program wrote them.

Names alone decide; nothing is read but small files of text. A folder that nobody knows is not a checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diagnose.checkpoints import manifest, plan

_STEP = re.compile(r"(?:^|[^0-9])([0-9]{1,15})$")
NAMED: Final = {
    "trainer": re.compile(r"checkpoint-[0-9]{1,15}"),
    "megatron": re.compile(r"iter_[0-9]{1,15}"),
    "deepspeed": re.compile(r"global_step[0-9]{1,15}"),
}
"""writer -> how it names the folder of one checkpoint"""
_ARCHIVES: Final = (".pt", ".pth", ".bin", ".ckpt")
_DEEP = 3
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    path: Path
    writer: str
    """dcp, megatron, deepspeed, trainer, safetensors or torch"""
    step: int | None
    sealed: bool
    """it has a manifest"""

    @property
    def what(self) -> str:
        """The writer, for people."""
        return _WRITERS[self.writer] + (" with manifest" if self.sealed else "")


_WRITERS: Final = {
    "dcp": "PyTorch DCP",
    "megatron": "Megatron",
    "deepspeed": "DeepSpeed",
    "trainer": "Hugging Face Trainer",
    "safetensors": "safetensors",
    "torch": "torch.save",
}


def find(path: Path) -> list[Found]:
    """The checkpoint at a path, or those in the folder and a few folders below; the newest first."""
    own = recognize(path)
    if own is not None:
        return [own]
    found: list[Found] = []
    _look(path, _DEEP, found)
    return sorted(found, key=_age, reverse=True)


def _age(one: Found) -> tuple[int, float, str]:
    """By step. One that was saved again after a roll-back is newer than the first of that step."""
    written = one.path / manifest.NAME if one.sealed else one.path
    return (one.step if one.step is not None else -1, written.stat().st_mtime, one.path.name)


def _look(folder: Path, deep: int, found: list[Found]) -> None:
    for path in sorted(folder.iterdir()):
        if len(found) >= _MOST:
            return
        if path.is_symlink():  # "latest" and "best" are the same checkpoints again
            continue
        one = recognize(path)
        if one is not None:
            found.append(one)
        elif deep and path.is_dir():
            _look(path, deep - 1, found)


def recognize(path: Path) -> Found | None:
    """The checkpoint that a path is."""
    if path.is_dir():
        writer = _writer(path)
        return Found(path, writer, step_of(path), (path / manifest.NAME).is_file()) if writer else None
    if path.is_file() and path.suffix in (".safetensors", *_ARCHIVES):
        return Found(path, "safetensors" if path.suffix == ".safetensors" else "torch", step_of(path), sealed=False)
    return None


def _writer(folder: Path) -> str | None:
    for writer, name in NAMED.items():
        if name.fullmatch(folder.name):
            return writer
    names = {path.name for path in folder.iterdir()}
    if plan.NAME in names or f"{plan.NAME}.tmp" in names or any(name.endswith(".distcp") for name in names):
        return "dcp"
    if "trainer_state.json" in names:
        return "trainer"
    if any(name.endswith(".safetensors") for name in names):
        return "safetensors"
    if manifest.NAME in names:
        return "torch"
    return None


def step_of(path: Path) -> int | None:
    """The number at the end of the name."""
    match = _STEP.search(path.name.removesuffix(path.suffix) if path.suffix in _ARCHIVES else path.name)
    return int(match[1]) if match else None
