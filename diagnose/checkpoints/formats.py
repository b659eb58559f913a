"""What each writer leaves behind when it has finished: the files that must be there, and what can be checked in them.

One function per writer, in a table. Each gives what is missing or cannot be true as ``Reason``s, and the files to read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from diagnose.checkpoints import manifest, plan, tensors
from diagnose.checkpoints.found import Found
from diagnose.quantities import MIB

State = Literal["unfinished", "damaged"]
_MOST_TEXT = 256 * MIB
_ARCHIVES: Final = (".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a checkpoint cannot be used."""

    state: State
    file: str
    """within the checkpoint; empty for all of it"""
    what: str


@dataclass(slots=True)
class Contents:
    """What is known of a checkpoint before its large files are read."""

    files: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)
    """whole files of torch.save"""
    parts: list[plan.Part] = field(default_factory=list)
    """pieces of files that are archives of torch.save"""
    reasons: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what a person should know, and what is no reason against it"""

    def bad(self, state: State, file: str, what: str) -> None:
        self.reasons.append(Reason(state, file, what))


def contents(found: Found) -> Contents:
    """What is there, for a checkpoint without a manifest."""
    if found.path.is_file():
        made = Contents([found.path.name])
        base = found.path.parent
    else:
        made = Contents(manifest.files_of(found.path))
        base = found.path
    if not made.files:
        made.bad("unfinished", "", "the folder has no files")
        return made
    made.archives = [name for name in made.files if name.endswith(_ARCHIVES)]
    _headers(base, made)
    _LOOK[found.writer](found.path, made)
    return made


def _headers(base: Path, made: Contents) -> None:
    """Of all files of safetensors, and of the indexes that say which tensor is in which of them."""
    there: dict[str, frozenset[str]] = {}
    for name in made.files:
        if name.endswith(".safetensors"):
            header = tensors.header(base / name)
            there[name] = header.names
            if header.problem:
                made.bad("damaged", name, header.problem)
    if there:
        made.notes.append("safetensors has no checksums: a changed weight cannot be seen without a manifest")
    for name in made.files:
        if name.endswith((".safetensors.index.json", ".bin.index.json")):
            _index(base, name, there, made)


def _index(base: Path, name: str, there: dict[str, frozenset[str]], made: Contents) -> None:
    said = _json(base, name, made)
    if said is None:
        return
    by_file: dict[str, set[str]] = defaultdict(set)
    weights = said.get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
        made.bad("damaged", name, "it does not say which tensor is in which file")
        return
    for tensor, file in weights.items():
        by_file[(PurePosixPath(name).parent / file).as_posix()].add(tensor)
    for file, wanted in sorted(by_file.items()):
        if file not in made.files:
            made.bad("damaged", file, f"it is missing; {name} names it")
        elif file in there and there[file] and (gone := wanted - there[file]):
            made.bad("damaged", file, f"it has no tensor {min(gone)!r}; {name} says so")


def _json(base: Path, name: str, made: Contents) -> dict[str, Any] | None:
    try:
        with (base / name).open("rb") as file:
            said = json.loads(file.read(_MOST_TEXT))
        if not isinstance(said, dict):
            raise ValueError("it is no object")
        return said
    except (OSError, ValueError, RecursionError) as error:
        made.bad("damaged", name, f"it cannot be read as JSON ({str(error)[:100]})")
        return None


def _dcp(folder: Path, made: Contents) -> None:
    if plan.NAME not in made.files:
        made.bad("unfinished", plan.NAME, "it is missing: DCP writes it last")
        return
    try:
        made.parts = plan.read(folder / plan.NAME)
    except (plan.PlanError, OSError) as error:
        made.bad("damaged", plan.NAME, str(error))
        return
    sizes = {name: (folder / name).stat().st_size for name in made.files}
    for name in sorted({part.file for part in made.parts} - set(made.files)):
        made.bad("damaged", name, f"it is missing; {plan.NAME} names it")
    cut = {part.file: part.tensor for part in made.parts if part.offset + part.length > sizes.get(part.file, 1 << 62)}
    for name, tensor in sorted(cut.items()):
        made.bad("damaged", name, f"it is cut: {tensor!r} lies behind its end")
    made.parts = [part for part in made.parts if part.file in sizes and part.file not in cut]
    if any(name.endswith(".safetensors") for name in made.files):
        made.parts = []  # DCP in the format of Hugging Face


def _trainer(folder: Path, made: Contents) -> None:
    if "trainer_state.json" not in made.files:
        made.bad("unfinished", "trainer_state.json", "it is missing: the Trainer writes it after all else")
    elif (said := _json(folder, "trainer_state.json", made)) is not None:
        number = folder.name.rpartition("-")[2]
        if number.isdigit() and said.get("global_step") != int(number):
            told = said.get("global_step")
            made.bad("damaged", "trainer_state.json", f"it says step {told!r}, and the folder step {number}")
    weights = ("model", "adapter_model", "pytorch_model")
    if not any(PurePosixPath(name).name.startswith(weights) for name in made.files):
        made.bad("unfinished", "", "it has no weights: no file model*, adapter_model* or pytorch_model*")
    if not any(name.startswith(("optimizer", "global_step", "pytorch_model_fsdp", "optimizer_0")) for name in made.files):
        made.notes.append("it has no optimizer: training from it does not go on as before")


_MEGATRON_RANK = re.compile(r"mp_rank_([0-9]{2,5})(?:_([0-9]{3,5}))?(?:_[0-9]{3,5})?/")


def _megatron(folder: Path, made: Contents) -> None:
    _after_the_last(folder, "latest_checkpointed_iteration.txt", re.compile(r"\s*([0-9]{1,15})\s*"), made)
    if plan.NAME in made.files or any(name.endswith(".distcp") for name in made.files):
        _dcp(folder, made)
        for name in ("common.pt", "metadata.json"):
            if name not in made.files:
                made.bad("damaged", name, "it is missing: Megatron's distributed checkpoints have it")
        return
    _grid([match.groups() for name in made.files if (match := _MEGATRON_RANK.match(name))], "mp_rank", made)
    if not made.archives:
        made.bad("unfinished", "", "it has no file mp_rank_*/model_optim_rng.pt")


_ZERO = re.compile(r"(?:bf16_)?zero_pp_rank_([0-9]{1,6})_mp_rank_([0-9]{1,6})_optim_states\.pt")


def _deepspeed(folder: Path, made: Contents) -> None:
    _after_the_last(folder, "latest", re.compile(r"\s*global_step([0-9]{1,15})\s*"), made)
    names = [PurePosixPath(name).name for name in made.files]
    if not any(name.endswith("_model_states.pt") for name in names):
        made.bad("unfinished", "", "it has no file *_model_states.pt")
    _grid([match.groups() for name in names if (match := _ZERO.fullmatch(name))], "zero_pp_rank", made)


def _grid(ranks: Iterable[tuple[str | None, ...]], name: str, made: Contents) -> None:
    """All combinations of the ranks' numbers, from 0: every rank writes its own file. Whether the last ranks of all are missing
    cannot be seen.
    """
    there = {tuple(int(number or 0) for number in rank) for rank in ranks}
    if not there:
        return
    first, second = (max(rank[axis] for rank in there) + 1 for axis in (0, 1))
    if first * second > 1 << 20:
        made.bad("damaged", "", f"the numbers of its files {name}_* cannot be true")
        return
    missing = sorted({(a, b) for a in range(first) for b in range(second)} - there)
    if missing:
        made.bad(
            "damaged", "", f"{len(missing)} of {first * second} files {name}_* are missing, the first of rank {missing[0]}"
        )


def _after_the_last(folder: Path, tracker: str, number: re.Pattern[str], made: Contents) -> None:
    """Whether the file that names the last complete checkpoint names this one or a later one."""
    path = folder.parent / tracker
    try:
        text = path.read_text("utf-8", "replace")[:200] if path.is_file() else ""
    except OSError:
        text = ""
    match, own = number.fullmatch(text), re.search(r"(?<![0-9])[0-9]+$", folder.name)
    if match is None or own is None:
        made.notes.append(f"no {tracker} beside it says which checkpoint was completed last")
    elif int(own[0]) > int(match[1]):
        made.bad("unfinished", "", f"{tracker}, which is written last, names step {int(match[1])}")


def _nothing_more(_: Path, __: Contents) -> None:
    """All was said by the files themselves."""


_LOOK: Final[dict[str, Callable[[Path, Contents], None]]] = {
    "dcp": _dcp,
    "trainer": _trainer,
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "safetensors": _nothing_more,
    "torch": _nothing_more,
}
