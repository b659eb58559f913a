"""Ranks, GPUs and nodes in a sentence."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.wording import ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([0, 1, 2, 3, 7], "0-3, 7"),
        ([1, 3, 5], "1, 3, 5"),
        ([0, 2, 4, 6, 8, 10], "0, 2, 4, 6, 8, 10"),
        ([0, 2, 4, 6, 8, 10, 12], "0, 2, 4, 6, 8, 10…"),
    ],
)
def test_numbers_that_follow_each_other_are_written_as_one(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
