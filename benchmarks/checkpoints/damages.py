"""Random damage to a checkpoint that two ranks wrote: every kind of it must be found, and the reason must name the file."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.found import recognize
from diagnose.checkpoints.verify import check
from tests.diagnose.checkpoints.ranks import on_ranks


def flipped(folder: Path, chance: random.Random) -> str:
    """One bit."""
    path = _any(folder, chance)
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path.name


def burst(folder: Path, chance: random.Random) -> str:
    """A page of zeros or of noise."""
    path = _any(folder, chance)
    data = bytearray(path.read_bytes())
    at = chance.randrange(max(1, len(data) - 4096))
    piece = data[at : at + 4096]
    noise = bytes(len(piece)) if chance.random() < 0.5 else chance.randbytes(len(piece))
    if noise == piece:
        noise = chance.randbytes(len(piece))
    data[at : at + 4096] = noise
    path.write_bytes(data)
    return path.name


def cut(folder: Path, chance: random.Random) -> str:
    path = _any(folder, chance)
    os.truncate(path, chance.randrange(path.stat().st_size))
    return path.name


def longer(folder: Path, chance: random.Random) -> str:
    path = _any(folder, chance)
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 5000)))
    return path.name


def missing(folder: Path, chance: random.Random) -> str:
    path = _any(folder, chance)
    path.unlink()
    return path.name


def swapped(folder: Path, chance: random.Random) -> str:
    """Two shards, each under the name of the other."""
    a, b = folder / "__0_0.distcp", folder / "__1_0.distcp"
    beside = folder / "beside"
    a.rename(beside)
    b.rename(a)
    beside.rename(b)
    return a.name


def of_another(folder: Path, chance: random.Random) -> str:
    """A shard of the checkpoint before, of the same size."""
    name = chance.choice(("__0_0.distcp", "__1_0.distcp"))
    shutil.copyfile(folder.parent / "step_000000001" / name, folder / name)
    return name


KINDS: tuple[Callable[[Path, random.Random], str], ...] = (flipped, burst, cut, longer, missing, swapped, of_another)
_OFTEN = (8, 2, 3, 1, 2, 1, 1)
"""how often each comes, of 18"""


def damages(count: int, seed: int, folder: str | None) -> None:
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    same = 0
    with tempfile.TemporaryDirectory(dir=folder) as name:
        on_ranks(2, Path(name), _save, str(Path(name, "ckpt")))
        whole = Path(name, "ckpt", "step_000000002")
        before = manifest.read(whole)
        kept = Path(name, "kept")
        shutil.copytree(whole, kept)
        for _ in range(count):
            (kind,) = chance.choices(KINDS, _OFTEN)
            where = kind(whole, chance)
            one = recognize(whole)
            checked = check(one) if one is not None else None
            if checked is not None and checked.state == "whole":
                same += where == manifest.NAME and manifest.read(whole) == before
                missed[kind.__name__] += not (where == manifest.NAME and manifest.read(whole) == before)
            elif checked is not None and where != manifest.NAME and where not in {reason.file for reason in checked.reasons}:
                missed[f"{kind.__name__}, wrong file named"] += 1
            else:
                found[kind.__name__] += 1
            shutil.rmtree(whole)
            shutil.copytree(kept, whole)
    print(f"{count} damages: {found.total()} found, {missed.total()} missed; {same} changed the manifest without its meaning")
    print(", ".join(f"{kind} {number}" for kind, number in sorted(found.items())))
    if missed:
        print("MISSED", dict(missed))


def _any(folder: Path, chance: random.Random) -> Path:
    """A file, by chance and by size: shards most often, the plan and the manifest too."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != marks.NAME)
    return chance.choice(files) if chance.random() < 0.5 else chance.choices(files, [one.stat().st_size for one in files])[0]


def _save(rank: int, folder: str) -> None:
    import torch

    from diagnose.checkpoints.saving import Checkpoints

    torch.manual_seed(rank)
    checkpoints = Checkpoints(folder)
    for step in (1, 2):
        checkpoints.save(step, {f"rank{rank}.{n}": torch.randn(100_000) for n in range(4)})
    checkpoints.close()
