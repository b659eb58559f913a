"""Was it the node's fault: yes, no, or cannot tell, and because of what."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.report import Diagnosis, Suspects
from service.dashboard.blame import fault, known_of

NAMED = Suspects(nodes=["gpu-7"])
ECC = Diagnosis(category="infrastructure", reason="ecc_error", confidence=0.9, culprits=["gpu-7"], suspects=NAMED)
NCCL = Diagnosis(category="infrastructure", reason="nccl_timeout", confidence=0.9, suspects=NAMED)
BUG = Diagnosis(category="script", reason="type_error", confidence=0.9, suspects=NAMED)


def checked(result: str, at: float = 200.0) -> dict[str, Any]:
    return {"gpu-7": {"result": result, "at": at}}


@pytest.mark.parametrize(
    ("diagnosis", "failures", "checks", "answer", "because"),
    [
        (ECC, {}, {}, "yes", "gpu-7 reported a fault of its own hardware"),
        (ECC, {"gpu-7": 3}, {}, "yes", "3 infrastructure failures of other jobs"),
        (ECC, {}, checked("good"), "yes", "it was mended, or the fault comes and goes"),
        (NCCL, {}, {}, "cannot tell", "diagnose nodes check --nodes gpu-7"),
        (NCCL, {"gpu-7": 2}, {}, "yes", "the same node failed other jobs"),
        (NCCL, {"gpu-7": 2}, checked("good"), "no", "found gpu-7 good"),
        (NCCL, {}, checked("faulty"), "yes", "found gpu-7 faulty"),
        (NCCL, {}, checked("faulty", at=50.0), "cannot tell", "no node check since then"),
        (BUG, {"gpu-7": 5}, {}, "no", "it fails on any node"),
        (BUG.model_copy(update={"category": "framework", "reason": "loss_anomaly"}), {}, {}, "cannot tell", "no node check"),
        (BUG, {}, checked("faulty"), "yes", "found gpu-7 faulty"),
        (NCCL.model_copy(update={"suspects": Suspects()}), {}, {}, "cannot tell", "no line names a node"),
    ],
)
def test_whose_fault_it_was(
    diagnosis: Diagnosis, failures: dict[str, int], checks: dict[str, Any], answer: str, because: str
) -> None:
    found = fault(diagnosis, known_of(diagnosis.suspects.nodes, failures, checks, since=100.0))
    assert found.answer == answer
    assert because in "; ".join(found.because)
