"""What torch, safetensors and the Trainer of transformers really write."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.checkpoints import plan
from diagnose.checkpoints.found import find
from diagnose.checkpoints.verify import Checked, check
from tests.diagnose.checkpoints.samples import flip

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]
torch = pytest.importorskip("torch")


def only(path: Path) -> Checked:
    (found,) = find(path)
    return check(found)


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    import torch.distributed.checkpoint as dcp

    model = torch.nn.Linear(200, 200)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 200)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5, "random": torch.get_rng_state()}
    dcp.save(state, checkpoint_id=tmp_path / "step_5")
    return tmp_path / "step_5"


def test_dcp(dcp: Path) -> None:
    checked = only(dcp)
    assert (checked.state, checked.step, checked.found.writer) == ("complete", 5, "dcp")
    assert checked.covered > 0.9 * sum(part.length for part in plan.read(dcp / plan.NAME)) - 100_000 > 0


def test_a_flipped_bit_that_dcp_loads_is_found(dcp: Path) -> None:
    """The reason for all this: torch gives the wrong number without a word."""
    import torch.distributed.checkpoint as torch_dcp

    before = {"model": torch.nn.Linear(200, 200).state_dict()}
    torch_dcp.load(before, checkpoint_id=dcp)
    (part,) = (one for one in plan.read(dcp / plan.NAME) if one.tensor == "model.weight")
    flip(dcp / part.file, part.offset + part.length // 2, 6)
    after = {"model": torch.nn.Linear(200, 200).state_dict()}
    torch_dcp.load(after, checkpoint_id=dcp)

    assert not torch.equal(before["model"]["weight"], after["model"]["weight"])
    assert only(dcp).why.startswith(f"{part.file}: 'model.weight': the record ")


def test_torch_save_without_checksums_is_complete_and_nothing_of_it_was_compared(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.randn(100)}, tmp_path / "model.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    checked = only(tmp_path / "model.pt")
    assert (checked.state, checked.covered) == ("complete", 0)
    assert "not checked" in checked.why


def test_the_old_format_of_torch_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.randn(100)}, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    assert "or older than torch 1.6" in only(tmp_path / "model.pt").why
