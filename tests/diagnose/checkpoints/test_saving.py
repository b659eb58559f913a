"""With real torch and, for several ranks, real processes over gloo."""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from diagnose.client import Alarm, Resume, Word
from tests.diagnose.checkpoints.ranks import on_ranks
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]
torch = pytest.importorskip("torch")

from diagnose.checkpoints.saving import CheckpointError, Checkpoints, Start  # noqa: E402
from diagnose.checkpoints.writer import HashingFiles  # noqa: E402


class Told:
    """In place of the client: what is told, and what it answers."""

    def __init__(self, answer: Resume | None = None) -> None:
        self.answer = answer or Resume()
        self.word: Word | None = None
        self.told: list[tuple[int, str, bool | None]] = []

    def resume(self, *, proposed: bool = False) -> Resume:
        return self.answer

    def checkpoint(
        self, step: int, path: Path, *, healthy: bool | None = None, why: str | None = None, cost_s: float | None = None
    ) -> None:
        self.told.append((step, path.name, healthy))


def state(value: float = 0.0) -> dict[str, Any]:
    return {"model": {"weight": torch.full((100, 50), value)}, "step": int(value), "random": torch.get_rng_state()}


def saved(folder: Path, *steps: int) -> None:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, state(step))
    checkpoints.close()


def test_what_is_saved_is_whole_and_dcp_alone_reads_it(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(7, state(7), loss=2.5)
    checkpoints.close()

    (found,) = find(tmp_path)
    made = manifest.read(path)
    assert check(found).state == "whole"
    assert made is not None
    assert (made.step, made.facts, set(made.files)) == (7, {"loss": 2.5}, {"__0_0.distcp", ".metadata"})
    loaded = state()
    dcp.load(loaded, checkpoint_id=path)
    assert torch.equal(loaded["model"]["weight"], torch.full((100, 50), 7.0))
    assert loaded["step"] == 7


def test_the_archives_in_it_are_not_hashed_twice_and_those_of_others_are_as_ever(tmp_path: Path) -> None:
    """torch takes longer for the CRC-32 in its archive, which it never compares, than we for all of ours."""

    class Beside(HashingFiles):
        """While it is written the training saves something by itself."""

        @contextlib.contextmanager
        def opened(self, path: Path) -> Iterator[IO[bytes]]:
            saving = threading.Thread(target=torch.save, args=(torch.randn(100), tmp_path / "other.pt"))
            saving.start()
            saving.join()
            with super().opened(path) as file:
                yield file

    checkpoints = Checkpoints(tmp_path / "ckpt", files=Beside)
    checkpoints.save(1, {"a": torch.randn(100)})
    checkpoints.close()
    (shard,) = (tmp_path / "ckpt" / "step_000000001").glob("*.distcp")
    assert not any(one.CRC for one in zipfile.ZipFile(shard).infolist())
    assert all(one.CRC for one in zipfile.ZipFile(tmp_path / "other.pt").infolist())


def test_the_second_place_saves_a_machine_that_lost_its_disk(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    checkpoints = Checkpoints(first, behind=second)
    for step in (1, 2):
        checkpoints.save(step, state(step))
        checkpoints.wait()
    checkpoints.close()
    lost = Checkpoints(tmp_path / "new", behind=second)
    loaded = state()
    assert lost.resume(loaded).step == loaded["step"] == 2
    lost.close()


def test_the_newest_whole_one_of_either_place_is_taken(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    checkpoints = Checkpoints(first, behind=second)
    checkpoints.save(1, state(1))
    checkpoints.wait()
    assert checkpoints.behind is not None
    while checkpoints.behind.newest is None:
        time.sleep(0.01)
    path = checkpoints.save(2, state(2))
    checkpoints.close()
    flip(path / "__0_0.distcp", 5000)
    told = Told()
    again = Checkpoints(first, run=told, behind=second)
    loaded = state()
    start = again.resume(loaded)
    assert (start.step, start.passed_over, float(loaded["model"]["weight"][0, 0])) == (2, (), 2.0)  # its other copy is whole
    assert told.told == [], "one copy of it is whole, so the step is not bad"
    assert "Its copy here was damaged (__0_0.distcp: bytes 0 to" in start.why
    again.close()
    flip(path / "__0_0.distcp", 5000)
    flip(second / path.name / "__0_0.distcp", 5000)
    last = Checkpoints(first, run=told, behind=second)
    assert last.resume(state()).step == 1
    assert told.told == [(2, path.name, False)]
    last.close()


def test_a_damaged_copy_spoils_no_other_one(tmp_path: Path) -> None:
    """When it was found, the second place was away. The next run saves on, and the one after that takes the whole copy."""
    first, second, away = tmp_path / "first", tmp_path / "second", tmp_path / "away"
    checkpoints = Checkpoints(first, behind=second)
    checkpoints.save(1, state(1))
    path = checkpoints.save(2, state(2))
    checkpoints.close()
    flip(path / "__0_0.distcp", 5000)
    second.rename(away)
    assert Checkpoints(first, behind=second).resume(state()).step == 1
    away.rename(second)
    on = Checkpoints(first, behind=second)
    newest = on.save(3, state(3))
    on.close()
    for copy in (first, second):
        shutil.rmtree(copy / newest.name)
    again = Checkpoints(first, behind=second)
    loaded = state()
    assert (again.resume(loaded).step, float(loaded["model"]["weight"][0, 0])) == (2, 2.0)
    again.close()


def _fetch_together(rank: int, first: str, second: str) -> tuple[int, float]:
    checkpoints = Checkpoints(first, behind=second)
    loaded = state()
    start = checkpoints.resume(loaded)
    checkpoints.close()
    return start.step, float(loaded["model"]["weight"][0, 0])


def test_ranks_fetch_once_and_start_alike(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "first", behind=tmp_path / "second")
    checkpoints.save(3, state(3))
    checkpoints.close()
    found = on_ranks(2, tmp_path, _fetch_together, str(tmp_path / "new"), str(tmp_path / "second"))
    assert found == [(3, 3.0), (3, 3.0)]


class Gate(HashingFiles):
    """Nothing is written before it opens."""

    opens = threading.Event()

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[IO[bytes]]:
        assert self.opens.wait(60)
        with super().opened(path) as file:
            yield file


def test_the_training_goes_on_while_it_is_written(tmp_path: Path) -> None:
    """What is changed after ``save`` returned is not in the checkpoint."""
    Gate.opens.clear()
    told = Told()
    checkpoints = Checkpoints(tmp_path, told, files=Gate)  # type: ignore[arg-type]
    training = state(1)
    path = checkpoints.save(1, training)
    training["model"]["weight"].fill_(9)
    assert not (path / manifest.NAME).exists()
    assert told.told == []
    Gate.opens.set()
    checkpoints.close()

    loaded = state()
    assert Checkpoints(tmp_path).resume(loaded).step == 1
    assert torch.equal(loaded["model"]["weight"], torch.full((100, 50), 1.0))
    assert told.told[0] == (1, "step_000000001", None)


def test_the_memory_of_the_copy_is_used_again_and_only_when_it_is_written(tmp_path: Path) -> None:
    Gate.opens.clear()
    checkpoints = Checkpoints(tmp_path, files=Gate)
    training = state(1)
    checkpoints.save(1, training)
    second = threading.Thread(target=lambda: (training["model"]["weight"].fill_(2), checkpoints.save(2, training)))
    second.start()
    second.join(0.3)
    assert second.is_alive()  # held back
    Gate.opens.set()
    second.join(60)
    checkpoints.close()

    assert [check(one).state for one in find(tmp_path)] == ["whole", "whole"]
    loaded = state()
    (tmp_path / "step_000000002" / manifest.NAME).unlink()
    assert Checkpoints(tmp_path).resume(loaded).step == 1
    assert torch.equal(loaded["model"]["weight"], torch.full((100, 50), 1.0))


class Full(HashingFiles):
    """A disk without room."""

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[IO[bytes]]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield


def test_what_went_wrong_is_raised_by_the_next_call(tmp_path: Path) -> None:
    told = Told()
    checkpoints = Checkpoints(tmp_path, told, files=Full)  # type: ignore[arg-type]
    checkpoints.save(1, state(1))
    with pytest.raises(CheckpointError, match=r"the checkpoint of step 1 was not saved: .*No space left on device"):
        checkpoints.save(2, state(2))
    checkpoints.close()
    assert told.told == []
    assert Checkpoints(tmp_path).resume().step == 0


def test_damage_is_passed_over_told_and_remembered(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    flip(tmp_path / "step_000000003" / "__0_0.distcp", 5000)
    told = Told()
    start = Checkpoints(tmp_path, told).resume(state())  # type: ignore[arg-type]

    assert (start.step, start.path) == (2, tmp_path / "step_000000002")
    assert start.why.startswith(
        "Step 2 is the newest whole checkpoint. 1 newer was passed over: step_000000003: __0_0.distcp: bytes"
    )
    assert told.told == [(3, "step_000000003", False)]
    verdict = marks.read(tmp_path / "step_000000003")
    assert verdict is not None
    assert verdict.good is False
    flip(tmp_path / "step_000000003" / "__0_0.distcp", 5000)
    assert "it is bad: __0_0.distcp" in Checkpoints(tmp_path).resume().passed_over[0][1]


def test_without_any_the_training_begins_anew(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "gone").resume(state()) == Start(
        0, None, (), "There is no checkpoint. The training begins anew."
    )


def test_a_roll_back_of_the_service_is_followed(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3)
    told = Told(Resume(step=1, path="/elsewhere/step_000000001", skip=((1, 4),), why="A roll-back.", known=True))
    start = Checkpoints(tmp_path, told).resume(state())  # type: ignore[arg-type]
    assert (start.step, start.skip, [path.name for path, _ in start.passed_over]) == (
        1,
        ((1, 4),),
        ["step_000000003", "step_000000002"],
    )
    assert start.skips(4)
    assert not start.skips(5)


def test_without_a_roll_back_a_newer_one_than_the_service_knows_is_taken(tmp_path: Path) -> None:
    """It may have been away when the last was reported."""
    saved(tmp_path, 1, 2, 3)
    assert Checkpoints(tmp_path, Told(Resume(step=1, known=True))).resume().step == 3  # type: ignore[arg-type]


def test_the_same_step_again_does_not_touch_the_first(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    before = (tmp_path / "step_000000005" / manifest.NAME).read_bytes()
    saved(tmp_path, 5)
    assert (tmp_path / "step_000000005" / manifest.NAME).read_bytes() == before
    assert Checkpoints(tmp_path).resume().path == tmp_path / "2-step_000000005"


# Several ranks


def replicas(rank: int, folder: str) -> dict[str, Any]:
    """DDP: each rank has all of it."""
    checkpoints = Checkpoints(folder)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    checkpoints.close()
    loaded = state()
    start = Checkpoints(folder).resume(loaded)
    return {"step": start.step, "weight": loaded["model"]["weight"].sum().item(), "why": start.why}


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_save_and_resume_together(tmp_path: Path, count: int) -> None:
    told = on_ranks(count, tmp_path, replicas, str(tmp_path / "ckpt"))
    assert told == [{"step": 2, "weight": 10000.0, "why": "Step 2 is the newest whole checkpoint."}] * count
    assert [check(one).state for one in find(tmp_path / "ckpt")] == ["whole", "whole"]


def sharded(rank: int, folder: str, damaged: str) -> tuple[int, str, bool]:
    """FSDP2: each rank has its part. Rank 0 damages a file between."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    fully_shard(model, mesh=mesh)
    checkpoints = Checkpoints(folder)
    before = {name: value.to_local().clone() for name, value in model.state_dict().items()}
    checkpoints.save(1, {"model": model.state_dict()})
    checkpoints.save(2, {"model": model.state_dict()})
    checkpoints.close()
    if rank == 0 and damaged:
        flip(Path(folder, "step_000000002", damaged), 2000)
    dist.barrier()
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    start = Checkpoints(folder).resume({"model": model.state_dict()})
    after = {name: value.to_local() for name, value in model.state_dict().items()}
    return start.step, start.why, all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("damaged", ["", "__0_0.distcp", "__1_0.distcp"])
def test_parts_of_ranks_come_back(tmp_path: Path, damaged: str) -> None:
    told = on_ranks(2, tmp_path, sharded, str(tmp_path / "ckpt"), damaged)
    assert told[0] == told[1]
    step, why, equal = told[0]
    assert equal
    assert step == (1 if damaged else 2)
    assert damaged in why


def full_on_one(rank: int, folder: str) -> tuple[str, int]:
    checkpoints = Checkpoints(folder, files=Full if rank == 1 else HashingFiles)
    checkpoints.save(1, state(1))
    try:
        checkpoints.wait()
    except CheckpointError as error:
        return str(error), Checkpoints(folder).resume().step
    return "", 0


def test_what_goes_wrong_on_one_rank_is_raised_on_all(tmp_path: Path) -> None:
    told = on_ranks(2, tmp_path, full_on_one, str(tmp_path / "ckpt"))
    assert ["rank 1: " in said and "No space left" in said for said, _ in told] == [True, True]
    assert [step for _, step in told] == [0, 0]


def by_a_process(rank: int, folder: str) -> tuple[int, float]:
    checkpoints = Checkpoints(folder, how="process")
    for step in (1, 2):
        checkpoints.save(step, state(step), loss=0.5)
    checkpoints.close()
    loaded = state()
    return Checkpoints(folder).resume(loaded).step, loaded["model"]["weight"].sum().item()


def test_a_process_can_write_instead_of_a_thread(tmp_path: Path) -> None:
    assert on_ranks(2, tmp_path, by_a_process, str(tmp_path / "ckpt")) == [(2, 10000.0)] * 2
    assert [check(one).state for one in find(tmp_path / "ckpt")] == ["whole", "whole"]


def test_a_state_that_does_not_fit_is_named(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match="it is whole, and does not fit the state"):
        Checkpoints(tmp_path).resume({"model": {"weight": torch.zeros(3, 3)}})


def asked_on_one(rank: int, folder: str) -> tuple[list[int], bool]:
    """SIGTERM comes to rank 1 only."""
    import os
    import signal

    checkpoints = Checkpoints(folder, every_s=3600)
    checkpoints.listen()
    saved_at = []
    for step in range(1, 5000):
        time.sleep(0.002)
        if rank == 1 and step == 50:
            os.kill(os.getpid(), signal.SIGTERM)
        if checkpoints.due(step):
            checkpoints.save(step, state(step))
            saved_at.append(step)
        if checkpoints.ending:
            break
    checkpoints.close()
    return saved_at, checkpoints.ending


def test_a_save_before_all_ranks_heard_of_the_end_is_not_the_last(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every_s=math.inf)
    checkpoints.asking.now, checkpoints.asking.ending = "the signal SIGTERM", True
    checkpoints.save(4, state(4))  # by a rule of the training's own
    assert (checkpoints.due(5), checkpoints.ending) == (True, True)
    assert not checkpoints.due(6), "once"
    checkpoints.close()


def test_a_signal_to_one_rank_is_heard_by_all(tmp_path: Path) -> None:
    told = on_ranks(2, tmp_path, asked_on_one, str(tmp_path / "ckpt"))
    assert told[0] == told[1]
    (saved_at,), ending = told[0]
    assert saved_at >= 50
    assert ending


def test_what_holds_no_numbers_is_told_as_bad_and_not_started_from(tmp_path: Path) -> None:
    told = Told()
    checkpoints = Checkpoints(tmp_path, told)  # type: ignore[arg-type]
    checkpoints.save(1, state(1))
    checkpoints.save(2, {**state(2), "other": torch.tensor([1.0, float("nan")])})
    checkpoints.close()
    assert (2, "step_000000002", False) in told.told
    assert Checkpoints(tmp_path).resume().step == 1


def test_the_word_of_the_service_is_followed(tmp_path: Path) -> None:
    told = Told()
    checkpoints = Checkpoints(tmp_path, told, every_s=3600)  # type: ignore[arg-type]
    checkpoints.save(1, state(1))
    checkpoints.save(100, state(2))
    checkpoints.wait()
    assert not checkpoints.due(101)
    told.word = Word(save="its node is going bad", alarms=(Alarm(50, "the loss rose"),))
    assert checkpoints.due(102)
    checkpoints.save(102, state(3))
    assert not checkpoints.due(103)  # the same word asks only once
    checkpoints.close()
    assert (100, "step_000000100", False) in told.told
    assert Checkpoints(tmp_path).resume().step == 1


def test_old_ones_are_deleted(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2, thin=())
    for step in range(1, 6):
        checkpoints.save(step, state(step))
    checkpoints.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000000004", "step_000000005"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_what_is_no_finite_number_is_seen_in_every_type(dtype: str) -> None:
    from diagnose.checkpoints.writer import _worst

    kind = getattr(torch, dtype)
    for value, expected in (("nan", "nan"), ("inf", "inf"), ("-inf", "inf"), ("1.5", None), ("-0.0", None)):
        for others in ([], [0.0, -1.0, 3.0], [-2.0, -50000.0]):
            assert _worst(torch.tensor([*others, float(value), *others]).to(kind)) == expected, (value, others)
    both = torch.tensor([float("inf"), float("-nan"), -1.0]).to(kind)
    assert _worst(both) == "nan"
    turned = torch.tensor([[1.0, 2.0], [3.0, float("nan")]]).to(kind).t()
    assert _worst(turned) == "nan"
    if kind.itemsize > 1:
        largest = torch.finfo(kind).max
        assert _worst(torch.tensor([largest, -largest], dtype=kind)) is None
