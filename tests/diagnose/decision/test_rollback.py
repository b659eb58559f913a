"""Where a job goes on after its loss went wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.decision.rollback import RollBack, Saved, start


def saved(attempt: int, *steps: int) -> list[Saved]:
    return [Saved(attempt, step, f"ckpt/{attempt}/{step}") for step in steps]


SPIKE = RollBack(1, 110, 130)


@pytest.mark.parametrize(
    ("checkpoints", "rollbacks", "path", "skip"),
    [
        ([], [], None, []),
        (saved(1, 20, 40), [], "ckpt/1/40", []),
        (saved(1, 40, 100, 120, 140), [SPIKE], "ckpt/1/100", [(110, 130)]),
        (saved(1, 110, 111), [SPIKE], "ckpt/1/110", [(110, 130)]),  # after 110 steps batch 110 was not yet trained on
        ([*saved(1, 40, 100), Saved(1, 105, "bad", healthy=False)], [SPIKE], "ckpt/1/100", [(110, 130)]),
        (saved(1, 120, 140), [SPIKE], None, [(110, 130)]),
        (saved(1, 100, 140) + saved(2, 120, 160), [SPIKE], "ckpt/2/160", []),  # the second attempt had skipped them
        (saved(1, 100) + saved(2, 120), [SPIKE], "ckpt/2/120", [(110, 130)]),
        (saved(1, 100) + saved(2, 150, 200), [SPIKE, RollBack(2, 180, 190)], "ckpt/2/150", [(180, 190)]),
        (saved(1, 100) + saved(2, 105), [SPIKE, RollBack(2, 131, 140)], "ckpt/2/105", [(110, 140)]),
        (saved(1, 100) + saved(2, 100), [], "ckpt/2/100", []),
    ],
)
def test_the_newest_healthy_checkpoint_before_the_batches(
    checkpoints: list[Saved], rollbacks: list[RollBack], path: str | None, skip: list[tuple[int, int]]
) -> None:
    found = start(checkpoints, rollbacks)
    assert (found.path, found.skip) == (path, skip)
    assert found.why.endswith(".")


_points = st.builds(Saved, st.integers(1, 3), st.integers(0, 60), st.just("p"), st.sampled_from([None, True, False]))
_backs = st.builds(lambda attempt, first, more: RollBack(attempt, first, first + more), *[st.integers(1, 40)] * 3)


@given(st.lists(_points), st.lists(_backs))
def test_never_spoilt_and_every_bad_batch_ahead_is_left_out(checkpoints: list[Saved], rollbacks: list[RollBack]) -> None:
    found = start(checkpoints, rollbacks)
    fit = [
        c.step
        for c in checkpoints
        if c.healthy is not False and all(c.attempt > r.attempt or c.step <= r.first for r in rollbacks)
    ]
    assert found.step == max(fit, default=None)
    skipped = {batch for first, last in found.skip for batch in range(first, last + 1)}
    assert {b for r in rollbacks for b in range(r.first, r.last + 1) if b >= (found.step or 0)} <= skipped
    assert skipped <= {b for r in rollbacks for b in range(r.first, r.last + 1)}
