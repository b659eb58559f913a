"""Checkpoints of a training -> which of them are whole, which are good, and where to start again.

    hashes      bytes of a file -> its checksums, block by block
    manifest    checksums of all files of a checkpoint; written last, so it is the commit
    found       a folder -> the checkpoints in it, and who wrote them
    formats     what each of those writers leaves behind when it has finished
    archives    a file of torch.save -> whether its own checksums agree
    tensors     a file of safetensors -> whether its header fits its size
    plan        the .metadata of PyTorch DCP -> which bytes of which file belong together, without unpickling
    verify      a checkpoint -> whole, complete, unfinished or damaged, with reasons
    good        what is known of a checkpoint -> good, bad, or nobody knows yet
    kept        checkpoints with verdicts -> which may be deleted
    when        what a save costs, and how often a job fails -> how often to save
    exact       losses before and after a resume -> whether it is the same training
    keeper      what rank 0 does: judge, tell the service, delete
    places      the second place: a folder of a shared file system, or an object store
    behind      uploads to it, and fetches from it
    asking      who wants a checkpoint now
    around      verify, good and kept for what another program writes
    marks       what is known of a checkpoint besides its bytes

None of these imports torch, and none runs what a checkpoint contains: checkpoints are hostile input. Three import torch:

    saving      ``Checkpoints``: a state -> a checkpoint, behind the training; and back, the same on all ranks
    writer      DCP's own writer, with hashes and a manifest
    hooks       for trainings with a writer of their own: transformers, Lightning, DeepSpeed, torchtitan
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from diagnose.errors import DiagnoseError

__all__ = [
    "around",
    "asking",
    "behind",
    "exact",
    "found",
    "good",
    "hashes",
    "hooks",
    "keeper",
    "kept",
    "manifest",
    "marks",
    "places",
    "saving",
    "verify",
    "when",
    "writer",
]


def __getattr__(name: str) -> Any:
    """``Checkpoints``, without torch for those who do not use it."""
    if name not in ("Checkpoints", "CheckpointError", "Start"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise DiagnoseError(
            f"diagnose.checkpoints.{name} needs torch", remedy="install it: pip install 'diagnose-train[checkpoints]'"
        )
    return getattr(importlib.import_module("diagnose.checkpoints.saving"), name)
