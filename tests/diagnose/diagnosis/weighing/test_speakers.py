"""What the speakers promise: the kernel is known by its lines."""

from __future__ import annotations

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.speakers import by_kernel


def test_a_clock_of_a_library_is_not_the_kernels() -> None:
    def kernels(line: str) -> bool:
        return by_kernel(Hypothesis(Event(0, 0, 1, line, -1, 0), None, "unknown", 0, False, False))

    assert not kernels("[1620306933.125286] [b-an01:921717:0]  ib_md.c:1140 UCX  ERROR the device failed")
    assert kernels("[ 6933.125286] mlx5_core 0000:01:00.0: the device failed")
