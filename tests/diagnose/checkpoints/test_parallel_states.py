"""States that no rank has whole: tensor parallel, pipeline parallel, FSDP2 with tensor parallel. Real processes over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import check
from tests.diagnose.checkpoints.ranks import on_ranks
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
torch = pytest.importorskip("torch")


def _model() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def _plan() -> dict[str, Any]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    return {"0": ColwiseParallel(), "2": RowwiseParallel()}


def _tensor_parallel(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    return parallelize_module(_model(), init_device_mesh("cpu", (2,)), _plan())


def _both(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(_model(), mesh["tensor"], _plan())
    fully_shard(model, mesh=mesh["data"])
    return model


def _pipeline(rank: int) -> Any:
    """The stage of this rank, with the names that it has in the whole model."""
    model = _model()
    del model[0 if rank else 2]
    return model


MODELS = {"tensor": (_tensor_parallel, 2), "pipeline": (_pipeline, 2), "data and tensor": (_both, 4)}


def _flat() -> Any:
    """Every number of an optimizer under the name of its weight. Without it the groups of two stages have the same names."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(flatten_optimizer_state_dict=True)


def _state(model: Any, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer, options=_flat())
    return {"model": weights, "optimizer": moments}


def _put_back(model: Any, optimizer: Any, state: dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import set_state_dict

    parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
    set_state_dict(model, optimizer, **parts, options=_flat())


def _steps(model: Any, optimizer: Any, rank: int, kind: str, first: int, last: int) -> list[float]:
    """Each is trained on numbers that all ranks of its group share; a stage of a pipeline on its own."""
    losses = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step + (100 * (rank // 2) if kind == "data and tensor" else 0))
        width = 32 if kind == "pipeline" and rank else 16
        loss = model(torch.randn(4, width, generator=generator)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _trained(rank: int, folder: str, kind: str) -> tuple[list[float], list[float], int]:
    """Losses after a checkpoint, and those of a fresh model that was resumed from it."""
    from diagnose.checkpoints.saving import Checkpoints

    made, _ = MODELS[kind]
    checkpoints = Checkpoints(folder)
    model = made(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    _steps(model, optimizer, rank, kind, 0, 3)
    checkpoints.save(3, _state(model, optimizer))
    undisturbed = _steps(model, optimizer, rank, kind, 3, 6)
    checkpoints.wait()

    again = made(rank)
    moments = torch.optim.Adam(again.parameters(), lr=0.01)
    _steps(again, moments, rank, kind, 7, 8)  # so that it has moments, and other weights
    state = _state(again, moments)
    begun = checkpoints.resume(state)
    _put_back(again, moments, state)
    resumed = _steps(again, moments, rank, kind, 3, 6)
    checkpoints.close()
    return undisturbed, resumed, begun.step


@pytest.mark.parametrize("kind", MODELS)
def test_a_state_in_parts_is_whole_and_comes_back_bit_by_bit(tmp_path: Path, kind: str) -> None:
    count = MODELS[kind][1]
    for undisturbed, resumed, step in on_ranks(count, tmp_path, _trained, str(tmp_path / "out"), kind, longest_s=200):
        assert step == 3
        assert resumed == undisturbed
    (found,) = find(tmp_path / "out")
    assert check(found).state == "whole"
    shards = sorted(path.name for path in found.path.glob("*.distcp"))
    assert shards == [f"__{rank}_0.distcp" for rank in range(count)]
    flip(found.path / shards[-1], 4000)
    assert check(found).state == "damaged"


def test_what_tensor_parallel_ranks_saved_one_process_reads(tmp_path: Path) -> None:
    """The files are those of DCP, which puts the parts together."""
    from diagnose.checkpoints.saving import Checkpoints

    on_ranks(2, tmp_path, _trained, str(tmp_path / "out"), "tensor", longest_s=200)
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    alone = _steps(model, optimizer, 0, "tensor", 0, 6)[3:]
    fresh = _model()
    moments = torch.optim.Adam(fresh.parameters(), lr=0.01)
    _steps(fresh, moments, 0, "tensor", 7, 8)
    state = _state(fresh, moments)
    checkpoints = Checkpoints(tmp_path / "out")
    assert checkpoints.resume(state).step == 3
    _put_back(fresh, moments, state)
    assert _steps(fresh, moments, 0, "tensor", 3, 6) == pytest.approx(alone, rel=1e-5)
