"""The text before a number: which words of it are the number's name."""

from __future__ import annotations

import pytest

from diagnose.compression.names import shipped_names


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("\x01ms loss: ", "loss"),  # glued to the number before it: its unit
        ("\x01% loss: ", "loss"),
        ("\x01 ms loss: ", "loss"),  # behind a blank: a unit that is known
        ("\x01 train loss: ", "train loss"),  # and a word that is none
    ],
)
def test_the_unit_of_the_number_before_is_no_part_of_a_name(before: str, said: str) -> None:
    name = shipped_names().before(before)
    assert name is not None
    assert name.said == said


def test_a_name_has_six_words_at_most_and_the_first_one_is_whole() -> None:
    name = shipped_names().before("eight seven six five four three two loss: ")
    assert name is not None
    assert name.said == "six five four three two loss"
