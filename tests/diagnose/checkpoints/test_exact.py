from __future__ import annotations

import math
from pathlib import Path

import pytest

from diagnose.checkpoints.exact import NAME, Losses, compare

BEFORE = {11: 2.0, 12: 1.9, 13: 1.8}


@pytest.mark.parametrize(
    ("after", "state", "said"),
    [
        pytest.param(BEFORE, "equal", "steps 11 to 13", id="equal"),
        pytest.param({11: 2.0}, "equal", "steps 11 to 11", id="as far as it is known"),
        pytest.param({**BEFORE, 12: math.nextafter(1.9, 2)}, "close", "differ by 1", id="one bit"),
        pytest.param({11: 2.3, 12: 2.2, 13: 2.1}, "not exact", "the order of the data or the random state", id="other data"),
        pytest.param(
            {11: 2.0, 12: 1.9, 13: 2.4}, "not exact", "the optimizer, its learning rate or the scaler", id="optimizer"
        ),
        pytest.param({11: 2.0, 12: math.nan, 13: 1.8}, "not exact", "They part at step 12", id="not a number"),
        pytest.param({20: 1.0}, "unknown", "no loss of these steps", id="other steps"),
    ],
)
def test_losses_are_compared(after: dict[int, float], state: str, said: str) -> None:
    found = compare(BEFORE, after)
    assert found.state == state
    assert said in found.why


def test_losses_outlive_the_process_with_all_their_bits(tmp_path: Path) -> None:
    first = Losses(tmp_path)
    first.resumed(0)
    for step in range(1, 31):
        assert first.note(step, 1 / (step + 2)) is None
    with (tmp_path / NAME).open("a") as file:
        file.write("31 0x1.9p")  # it was killed while it wrote
    again = Losses(tmp_path)
    again.resumed(10)
    told = [again.note(step, 1 / (step + 2)) for step in range(11, 31)]
    (verdict,) = [one for one in told if one is not None]
    assert told.index(verdict) == 9  # after ten losses, and only once
    assert verdict.state == "equal"
    assert again.exactness == verdict


def test_after_a_second_resume_the_later_losses_count(tmp_path: Path) -> None:
    for scale in (1.0, 2.0):
        losses = Losses(tmp_path)
        losses.resumed(0)
        for step in range(1, 6):
            losses.note(step, scale * step)
    last = Losses(tmp_path)
    last.resumed(2)
    for step in (3, 4, 5):
        last.note(step, 2.0 * step)
    assert last.exactness is not None
    assert last.exactness.state == "equal"
