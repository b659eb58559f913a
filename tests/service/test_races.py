"""A batch of ``python -m benchmarks.races``: people, Slurm and the service act at the same moment."""

from __future__ import annotations

import pytest

from benchmarks.races.__main__ import races
from tests.support import slurm as real

pytestmark = [pytest.mark.server, pytest.mark.timeout(480)]


def test_nothing_is_done_twice_or_against_a_person() -> None:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    found = races(6, seed=1, nodes=tuple(f"gpu-{number}" for number in range(1, 7)))
    assert found.wrong == []
    assert sum(found.rounds.values()) == 6
    assert found.restarts > 0
