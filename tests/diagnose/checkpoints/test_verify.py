from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.checkpoints import manifest, plan
from diagnose.checkpoints.found import find
from diagnose.checkpoints.hashes import BLOCK
from diagnose.checkpoints.verify import Checked, check
from tests.diagnose.checkpoints.samples import archive, flip, sealed, tensors, trainer


def only(path: Path, *, read: bool = True) -> Checked:
    (found,) = find(path)
    return check(found, read=read)


def test_a_sealed_checkpoint_is_whole_only_when_it_was_read(tmp_path: Path) -> None:
    folder = sealed(tmp_path, 5)
    assert (only(folder).state, only(folder, read=False).state) == ("whole", "complete")
    assert (
        only(folder).covered
        == only(folder).size
        == sum(path.stat().st_size for path in folder.iterdir()) - (folder / manifest.NAME).stat().st_size
    )


@pytest.mark.slow
def test_each_flipped_bit_is_found(tmp_path: Path) -> None:
    folder = sealed(tmp_path, 5, size=200)
    path = folder / "__1_0.distcp"
    for at in range(path.stat().st_size):
        flip(path, at, at % 8)
        checked = only(folder)
        assert (checked.state, checked.reasons[0].file) == ("damaged", "__1_0.distcp"), at
        flip(path, at, at % 8)
    assert only(folder).state == "whole"


def test_it_is_said_where_the_damage_is(tmp_path: Path) -> None:
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_1" / "__0_0.distcp").write_bytes(bytes(2 * BLOCK + 10))
    manifest.seal(tmp_path / "step_1", 1)
    flip(tmp_path / "step_1" / "__0_0.distcp", BLOCK + 3)
    assert only(tmp_path / "step_1").why == "__0_0.distcp: bytes 16,777,216 to 33,554,432 differ from what was written"


def cut(folder: Path) -> None:
    os.truncate(folder / "__0_0.distcp", 100)


def missing(folder: Path) -> None:
    (folder / "__0_0.distcp").unlink()


def swapped(folder: Path) -> None:
    a, b, beside = folder / "__0_0.distcp", folder / "__1_0.distcp", folder / "beside"
    a.rename(beside)
    b.rename(a)
    beside.rename(b)


def longer(folder: Path) -> None:
    with (folder / "__0_0.distcp").open("ab") as file:
        file.write(b"x")


def a_folder(folder: Path) -> None:
    missing(folder)
    (folder / "__0_0.distcp").mkdir()


@pytest.mark.parametrize("damage", [cut, missing, swapped, longer, a_folder])
def test_other_damage_is_found(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = sealed(tmp_path, 5)
    damage(folder)
    assert only(folder).state == "damaged"
    assert only(folder).reasons[0].file == "__0_0.distcp"


def test_more_files_are_a_note(tmp_path: Path) -> None:
    folder = sealed(tmp_path, 5)
    (folder / "note.txt").write_text("mine")
    assert only(folder).state == "whole"
    assert only(folder).notes == ("1 files are not in the manifest, such as note.txt",)


# The Hugging Face Trainer


def test_a_checkpoint_of_the_trainer_is_complete(tmp_path: Path) -> None:
    checked = only(trainer(tmp_path, 100))
    assert (checked.state, checked.step, checked.reasons) == ("complete", 100, ())
    assert 6000 < checked.covered < checked.size
    assert checked.notes == ("safetensors has no checksums: a changed weight cannot be seen without a manifest",)


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth"])
def test_a_flipped_bit_in_an_archive_of_torch_is_found(tmp_path: Path, name: str) -> None:
    folder = trainer(tmp_path, 100)
    flip(folder / name, 1500)
    assert only(folder).why == f"{name}: the record '{Path(name).stem}/data/0' does not agree with its CRC-32"


def test_a_manifest_finds_a_flipped_weight_too(tmp_path: Path) -> None:
    folder = trainer(tmp_path, 100)
    manifest.seal(folder, 100)
    flip(folder / "model.safetensors", -5 + (folder / "model.safetensors").stat().st_size)
    assert only(folder).state == "damaged"


@pytest.mark.parametrize(
    ("name", "state"),
    [("trainer_state.json", "unfinished"), ("model.safetensors", "unfinished")],
)
def test_a_checkpoint_of_the_trainer_without_a_file_is_unfinished(tmp_path: Path, name: str, state: str) -> None:
    folder = trainer(tmp_path, 100)
    (folder / name).unlink()
    assert only(folder).state == state


def test_a_folder_of_another_step_is_damaged(tmp_path: Path) -> None:
    trainer(tmp_path, 100).rename(tmp_path / "checkpoint-200")
    assert only(tmp_path / "checkpoint-200").why == "trainer_state.json: it says step 100, and the folder step 200"


# safetensors


@pytest.mark.parametrize("at", [-1, -40, 1], ids=["by a byte", "by a tensor", "by a byte more"])
def test_a_cut_file_of_tensors_is_damaged(tmp_path: Path, at: int) -> None:
    path = tensors(tmp_path / "model.safetensors")
    os.truncate(path, path.stat().st_size + at)
    assert only(path).state == "damaged"


@pytest.mark.parametrize("head", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"{", b"\x02" + bytes(7) + b"[]"], ids=repr)
def test_a_header_that_cannot_be_true_is_damaged(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(head)
    assert only(tmp_path / "model.safetensors").state == "damaged"


def test_an_index_names_files_and_tensors_that_must_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    tensors(folder / "model-1.safetensors", ("a", "b"))
    names = {"a": "model-1.safetensors", "c": "model-1.safetensors", "d": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    said = {(reason.file, reason.what.partition(";")[0]) for reason in only(folder).reasons}
    assert said == {("model-1.safetensors", "it has no tensor 'c'"), ("model-2.safetensors", "it is missing")}


# Megatron and DeepSpeed


def megatron(folder: Path, step: int, ranks: tuple[str, ...] = ("mp_rank_00_000", "mp_rank_01_000")) -> Path:
    for rank in ranks:
        archive(folder / f"iter_{step:07}" / rank / "model_optim_rng.pt")
    return folder / f"iter_{step:07}"


def test_megatron_names_what_was_completed_last(tmp_path: Path) -> None:
    megatron(tmp_path, 100)
    newer = megatron(tmp_path, 200)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100")

    states = {one.step: check(one).state for one in find(tmp_path)}
    assert states == {100: "complete", 200: "unfinished"}
    assert only(newer).why == "latest_checkpointed_iteration.txt, which is written last, names step 100"


def test_a_rank_that_did_not_write_is_seen(tmp_path: Path) -> None:
    ranks = ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000")
    assert only(megatron(tmp_path, 100, ranks)).why == "1 of 4 files mp_rank_* are missing, the first of rank (1, 1)"


def deepspeed(folder: Path, step: int, ranks: tuple[int, ...] = (0, 1)) -> Path:
    made = folder / f"global_step{step}"
    archive(made / "mp_rank_00_model_states.pt")
    for rank in ranks:
        archive(made / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return made


def test_deepspeed_names_what_was_completed_last(tmp_path: Path) -> None:
    deepspeed(tmp_path, 100)
    deepspeed(tmp_path, 200)
    (tmp_path / "latest").write_text("global_step100\n")
    assert {one.step: check(one).state for one in find(tmp_path)} == {100: "complete", 200: "unfinished"}


def test_an_optimizer_that_is_missing_is_seen(tmp_path: Path) -> None:
    assert only(deepspeed(tmp_path, 100, (0, 2))).why == "1 of 3 files zero_pp_rank_* are missing, the first of rank (1, 0)"


# torch.save


def test_a_cut_archive_has_no_directory(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt")
    os.truncate(path, 2000)
    assert "the directory at the end of the archive is missing or damaged" in only(path).why


def test_an_archive_that_is_none_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"\x80\x02}.")
    assert "it does not begin as an archive of torch.save" in only(tmp_path / "model.pt").why


def test_records_over_each_other_are_refused(tmp_path: Path) -> None:
    """Or a small file would take hours: each record is the same megabytes."""
    path = archive(tmp_path / "model.pt")
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    for _ in range(3):
        data[at + 24 : at + 28] = (3000).to_bytes(4, "little")
        data[at + 20 : at + 24] = (3000).to_bytes(4, "little")
        at = data.find(b"PK\x01\x02", at + 4)
        if at < 0:
            break
    path.write_bytes(data)
    assert "its records claim more bytes than the file has" in only(path).why


@pytest.mark.slow
def test_random_bytes_never_break_it(tmp_path: Path) -> None:
    """Whatever is in a file, the answer is a state with a reason, and no exception."""
    chance = random.Random(7)
    for name in ("model.pt", "model.safetensors"):
        whole = (archive if name.endswith(".pt") else tensors)(tmp_path / name).read_bytes()
        for _ in range(300):
            data = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
            for _ in range(chance.randrange(1, 20)):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
            (tmp_path / name).write_bytes(data)
            checked = only(tmp_path / name)
            assert checked.state in ("complete", "damaged")
            assert checked.state == "complete" or checked.reasons[0].what


# DCP


class Hostile:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def test_a_plan_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "step_1"
    archive(folder / "__0_0.distcp")
    (folder / plan.NAME).write_bytes(pickle.dumps(Hostile(tmp_path / "made")))

    assert only(folder).why == ".metadata: it names posix.mkdir, which DCP does not write"
    assert not (tmp_path / "made").exists()
    pickle.loads((folder / plan.NAME).read_bytes())
    assert (tmp_path / "made").exists()  # whoever loads it runs it


BOMBS = {
    "a memo of a gigabyte": b"\x80\x04}r\xff\xff\xff\x3f.",
    "bytes that are not there": b"\x80\x05\x96\xff\xff\xff\xff\x0f\x00\x00\x00.",
    "the class itself is changed": b"\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n}X\x01\x00\x00\x00aNsb.",
    "a function is changed": b"\x80\x04ctorch\nSize\n}X\x01\x00\x00\x00aNsb.",
    "a key that is a list of lists": b"\x80\x04}" + b"(" * 40 + b"t" * 40 + b"Ns.",
    "nothing": b"",
    "an empty dictionary": b"\x80\x04}.",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_plan_that_means_harm_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / plan.NAME).write_bytes(text)
    with pytest.raises(plan.PlanError):
        plan.read(tmp_path / plan.NAME)


def test_without_its_plan_a_checkpoint_is_unfinished(tmp_path: Path) -> None:
    archive(tmp_path / "step_1" / "__0_0.distcp")
    assert only(tmp_path / "step_1").state == "unfinished"
    assert only(tmp_path / "step_1").why == ".metadata: it is missing: DCP writes it last"


# What is where


def test_the_newest_comes_first_and_links_are_not_followed(tmp_path: Path) -> None:
    for step in (900, 1000, 50):
        sealed(tmp_path, step)
    (tmp_path / "latest").symlink_to(tmp_path / "step_000001000")
    (tmp_path / "logs").mkdir()
    assert [one.step for one in find(tmp_path)] == [1000, 900, 50]
