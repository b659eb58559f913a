"""A short campaign of faults, as ``python -m benchmarks.campaign`` runs a long one: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from benchmarks.campaign.__main__ import campaign

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_what_was_acknowledged_is_there_whatever_happens_to_the_service() -> None:
    found = campaign(6, seed=20, kinds=("sqlite",))
    assert found.wrong == []
    assert (sum(found.rounds.values()), found.lost) == (6, 0)
    assert found.acknowledged > 400_000
